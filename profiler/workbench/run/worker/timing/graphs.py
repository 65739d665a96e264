"""CUDA graphs: how calls are captured, and what the nodes of a graph are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from workbench.evidence.records import Call, GraphNode
from workbench.ncu.command import lasting_kernel
from workbench.words import NodeKind

PER_THREAD = 2  # CUDA's handle of the stream of nvcc's launches that name none: see OWN_FLAGS
MOST_WARM_UP = 5  # calls, until two in a row launch the same
MOST_CHOICES = 8  # loads of a variant, until one launches what was timed


def capture_stream(extension: bool, other: torch.cuda.Stream | None = None) -> torch.cuda.Stream:
    """Return the stream on which to capture calls of an extension, or another one."""
    return torch.cuda.ExternalStream(PER_THREAD) if extension else other or torch.cuda.Stream()


def captured(
    work: Callable[[], Any], side: torch.cuda.Stream, beside: torch.cuda.CUDAGraph | None = None
) -> torch.cuda.CUDAGraph:
    """A graph of what ``work`` launches, on a stream that is captured, with its temporary tensors
    where those of ``beside`` are: the two never run at once. Raises RuntimeError.

    Not with ``torch.cuda.graph``: it collects garbage and synchronises, 0.1 s each time.
    """
    graph = torch.cuda.CUDAGraph(keep_graph=True)  # its nodes can be read
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin(pool=beside.pool() if beside else None)
        try:
            work()
            graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # what it says is only that the capture was broken
                graph.capture_end()
            # Torch's generators take a broken capture to go on still: let them draw as before.
            for generator in torch.cuda.default_generators:
                generator.graphsafe_set_state(generator.clone_state())
            raise
    graph.instantiate()
    return graph


def warm_up(call: Callable[[], Any], side: torch.cuda.Stream) -> Call | None:
    """Call until two calls in a row launch the same: compilers and autotuners work at the first
    ones. What they launch; None of what cannot be captured, which is called a few times.
    """
    before = None
    for _ in range(MOST_WARM_UP):
        call()
        try:
            now = nodes(captured(call, side))
        except Exception:  # it is profiled all the same
            torch.cuda.synchronize()
            now = None
        if now is not None and now == before:
            return now
        before = now
    return before


def as_timed(
    load: Callable[[], Callable[[], Any]], ways: Sequence[Call], side: torch.cuda.Stream
) -> Callable[[], Any]:
    """A call that is loaded and warmed up; loaded again, a few times, while it chooses to launch
    what none of the ``ways`` did that were timed.
    """
    every = [Counter(way) for way in ways]
    for _ in range(MOST_CHOICES):
        call = load()
        call_nodes = warm_up(call, side)
        if not every or call_nodes is None or Counter(call_nodes) in every:
            break
    return call


def nodes(graph: torch.cuda.CUDAGraph) -> Call:
    """List what the graph launches, in the order in which it was captured. Raises RuntimeError
    where the driver does not tell.
    """
    from cuda.bindings import driver

    raw, what = driver.CUgraph(graph.raw_cuda_graph()), "the nodes of a graph"
    _, count = _told(driver.cuGraphGetNodes(raw, 0), what)
    if not count:
        return ()
    handles, count = _told(driver.cuGraphGetNodes(raw, count), what)
    return tuple(map(_node, handles[:count]))


def _node(handle: Any) -> GraphNode:
    from cuda.bindings import driver

    types = driver.CUgraphNodeType
    kinds = {
        types.CU_GRAPH_NODE_TYPE_KERNEL: NodeKind.KERNEL,
        types.CU_GRAPH_NODE_TYPE_MEMSET: NodeKind.MEMSET,
        types.CU_GRAPH_NODE_TYPE_MEMCPY: NodeKind.MEMCPY,
    }
    (kind,) = _told(driver.cuGraphNodeGetType(handle), "the kind of a node")
    if kind != types.CU_GRAPH_NODE_TYPE_KERNEL:
        return GraphNode(kind=kinds.get(kind, NodeKind.OTHER))
    (params,) = _told(driver.cuGraphKernelNodeGetParams(handle), "the launch of a node")
    is_function = int(params.func)
    named = (
        driver.cuFuncGetName(params.func) if is_function else driver.cuKernelGetName(params.kern)
    )
    (name,) = _told(named, "the name of a kernel")
    return GraphNode(
        kind=NodeKind.KERNEL,
        kernel=lasting_kernel(name.decode()),  # mangled, as another process would have it
        grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
        block=(params.blockDimX, params.blockDimY, params.blockDimZ),
        shared_bytes=params.sharedMemBytes,
    )


def _told(answer: Sequence[Any], what: str) -> Sequence[Any]:
    """What the driver answers behind its status."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"{what} cannot be read: {status!r}")
    return values
