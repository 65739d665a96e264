"""The most that is taken of anything that comes from outside: one limit for each kind of input.

A message that refuses an input names its file and the limit. ``cuda/`` and ``remote/bootstrap.py``
have bounds of their own, since they also run where there is no workbench.
"""

from __future__ import annotations

# Bytes of a file as it is on the disk, and of one that is decompressed.
FILE = 64 << 20  # that is read whole: a record, a text, a definition
SETTINGS = 4 << 20  # workbench.toml, ablation.toml
SOURCE = 16 << 20  # of a variant, of a study, and what they name
BESIDE = 256 << 20  # that comes along with a file that is tried, without being asked for
TRACE = 1 << 30  # by torch.profiler, decompressed, or by iket
TIMELINE_BLOCKS = 1 << 18  # of a launch: a megabyte of evidence
TIMELINE_WARPS = 1 << 16  # of a launch whose warps are kept one by one; of more every n-th block
HELD = 4 << 30  # in any file
HELD_WHOLE = 256 << 20  # in one that is decompressed into memory
HELD_RATIO = 1000  # times its size; reports have 25, their tables 16
HELD_ALWAYS = 64 << 20  # no burden, whatever the ratio
LOG = 16 << 20  # of what a worker prints, and as much of its end

# Depth and count.
KEY_PARTS = 32  # of a dotted key: the memory to read it grows with their square
NAME_BYTES = 200  # of a name that becomes a file's, with its ending
BAD_LINES = 1000  # of a journal: they are read a hundred times as slowly as others
FRAMES = 100_000  # of a zstd file: an empty one takes 180 times its size to read
JOB_FILES = 10_000  # in the zip of a remote job
COMBINATIONS = 200  # of parameters: each is built, checked and timed beside all others
RANGE_VALUES = 10_000  # of one parameter, so that a slip is an error, not a long wait
LINE_ROWS = 1 << 20  # of a line table; a kernel of ten thousand instructions has as many
LINE_BYTES = 1 << 22  # of line tables that are read, some seconds each million
LINES_IN = 1 << 28  # bytes of a report that are searched for line tables

# Seconds.
STUDY_SECONDS = 30.0  # an import, or a call, of study.py
STUDY_LAST_SECONDS = 10.0  # more, after which code that no signal interrupts is ended
STUDY_AGAIN_SECONDS = 1.0  # until the next stop: the code may have caught the first one
REPORT_SECONDS = 30.0  # ncu_report at work on a report
TOOL_SECONDS = 8.0  # nvidia-smi and ncu, to say what they are
GIT_SECONDS = 120.0  # one call of git
SELF_TEST_SECONDS = 180.0  # one part of the test of doctor
# Seconds of silence of a worker.
STARTING_SECONDS = 120.0  # until more than a greeting is heard: it imports
COMPILING_SECONDS = 600.0  # while a front end compiles, or an autotuner chooses
TRIAL_SECONDS = 300.0  # of the first call of a file that is tried: an extension may be compiled
SHIP_SECONDS = 600.0  # while all kernels of a package are compiled

# Memory.
JSON_MEMORY = 512 << 20  # bytes that what is read of JSON may take
WORKER_MEMORY = 0.8  # of the machine's memory that one worker may take
STUDY_MEMORY = 4 << 30  # bytes of a command while it runs study.py
