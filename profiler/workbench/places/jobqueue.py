"""dask-jobqueue, to be imported from here: by itself it has Ctrl-C end the process with code 0."""

import signal

_on_ctrl_c = signal.getsignal(signal.SIGINT)

from dask_jobqueue.slurm import SLURMCluster as SLURMCluster  # noqa: E402

signal.signal(signal.SIGINT, _on_ctrl_c)
