"""What the modules of a study made from a problem call: the user's files, inputs, references.

Imported without torch too, so every function imports it for itself.
"""

from workbench.problems.given.annotated import Annotated as Annotated
from workbench.problems.given.calls import Network as Network
from workbench.problems.given.calls import accepted as accepted
from workbench.problems.given.calls import afterwards as afterwards
from workbench.problems.given.calls import by_name as by_name
from workbench.problems.given.calls import call as call
from workbench.problems.given.calls import called as called
from workbench.problems.given.calls import compared as compared
from workbench.problems.given.calls import exact as exact
from workbench.problems.given.calls import one as one
from workbench.problems.given.calls import plain as plain
from workbench.problems.given.calls import put as put
from workbench.problems.given.inputs import case as case
from workbench.problems.given.inputs import larger as larger
from workbench.problems.given.inputs import listed as listed
from workbench.problems.given.inputs import made as made
from workbench.problems.given.inputs import named as named
from workbench.problems.given.inputs import structured as structured
from workbench.problems.given.inputs import without as without
from workbench.problems.given.inputs import workload as workload
from workbench.problems.given.user_module import Dotted as Dotted
from workbench.problems.given.user_module import Extension as Extension
from workbench.problems.given.user_module import File as File
from workbench.problems.given.user_module import compiled as compiled
