"""The options of every verb, each typed once: what it is called, what it means, its default.

A verb's fields are its arguments and options, its docstring is what ``--help`` says of it. Nothing
heavy is imported here: this is read for every ``workbench --help``.
"""

from workbench.commands.options.measuring import AblateOptions as AblateOptions
from workbench.commands.options.measuring import BuildOptions as BuildOptions
from workbench.commands.options.measuring import CalibrateOptions as CalibrateOptions
from workbench.commands.options.measuring import CheckOptions as CheckOptions
from workbench.commands.options.measuring import ProfileOptions as ProfileOptions
from workbench.commands.options.measuring import SweepOptions as SweepOptions
from workbench.commands.options.measuring import TryOptions as TryOptions
from workbench.commands.options.measuring import WatchOptions as WatchOptions
from workbench.commands.options.reading import AdviseOptions as AdviseOptions
from workbench.commands.options.reading import BisectOptions as BisectOptions
from workbench.commands.options.reading import DiffOptions as DiffOptions
from workbench.commands.options.reading import DoctorOptions as DoctorOptions
from workbench.commands.options.reading import GateOptions as GateOptions
from workbench.commands.options.reading import InitOptions as InitOptions
from workbench.commands.options.reading import ListOptions as ListOptions
from workbench.commands.options.reading import NewOptions as NewOptions
from workbench.commands.options.reading import ReportOptions as ReportOptions
from workbench.commands.options.reading import ShipOptions as ShipOptions
from workbench.commands.options.reading import ShowOptions as ShowOptions
from workbench.commands.options.reading import StatusOptions as StatusOptions
