"""The records of the evidence folder, as they stand on disk under the schema that each kind has.

Keys that a record does not have are passed over: a newer version may write more of them.
"""

from __future__ import annotations

from workbench.evidence.records.base import UNITS as UNITS
from workbench.evidence.records.base import Build as Build
from workbench.evidence.records.base import BuiltKernel as BuiltKernel
from workbench.evidence.records.base import CapturedKernel as CapturedKernel
from workbench.evidence.records.base import CaptureIndex as CaptureIndex
from workbench.evidence.records.base import Ceiling as Ceiling
from workbench.evidence.records.base import CeilingsFile as CeilingsFile
from workbench.evidence.records.base import Check as Check
from workbench.evidence.records.base import Checks as Checks
from workbench.evidence.records.base import DerivedShape as DerivedShape
from workbench.evidence.records.base import Environment as Environment
from workbench.evidence.records.base import Finding as Finding
from workbench.evidence.records.base import Number as Number
from workbench.evidence.records.base import Provenance as Provenance
from workbench.evidence.records.base import Record as Record
from workbench.evidence.records.base import Tried as Tried
from workbench.evidence.records.journal import CaptureEntry as CaptureEntry
from workbench.evidence.records.journal import Entry as Entry
from workbench.evidence.records.journal import JournalEntry as JournalEntry
from workbench.evidence.records.journal import PredictionEntry as PredictionEntry
from workbench.evidence.records.journal import SessionEntry as SessionEntry
from workbench.evidence.records.journal import Shipped as Shipped
from workbench.evidence.records.journal import ShippedCubin as ShippedCubin
from workbench.evidence.records.journal import ShippedTime as ShippedTime
from workbench.evidence.records.journal import SpentEntry as SpentEntry
from workbench.evidence.records.timings import Audit as Audit
from workbench.evidence.records.timings import GraphNode as GraphNode
from workbench.evidence.records.timings import Series as Series
from workbench.evidence.records.timings import Session as Session
from workbench.evidence.records.timings import Timing as Timing
from workbench.evidence.records.timings import TimingHead as TimingHead
from workbench.evidence.records.timings import differing as differing
