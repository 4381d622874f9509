"""All that is known of what a rank sends and receives, for the rules that look at it as a whole."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.host_communication import HostCommunication
from advisor.analyses.communication.callers import Callers
from advisor.analyses.communication.communication import Communication
from advisor.analyses.communication.library import Library
from advisor.analyses.communication.needless_reductions import NeedlessReductions
from advisor.analyses.communication.needless_search import NeedlessSearch
from advisor.analyses.communication.parallelism import Parallelism


class Exchanges(Struct, frozen=True, eq=False):
    """What a rank sends and receives.

    of_device    kernels of collectives; None without a device
    of_host      collectives on the host; None where it has none
    parallelism  what they are for, by kind; None if not known
    needless     reductions that no update needs;  search: the cost of DistributedDataParallel's search for unused
                 parameters;  library: which one distributes the training;  callers: what calls them
    """

    of_device: Communication | None
    of_host: HostCommunication | None
    parallelism: Parallelism | None
    needless: NeedlessReductions
    search: NeedlessSearch
    library: Library
    callers: Callers

    @classmethod
    def compute(
        cls,
        of_device: Communication | None,
        of_host: HostCommunication | None,
        parallelism: Parallelism | None,
        needless: NeedlessReductions,
        search: NeedlessSearch,
        library: Library,
        callers: Callers,
    ) -> Exchanges:
        """The exchanges of a rank. Missing if reductions of several passes cannot be distinguished."""
        return cls(of_device, of_host, parallelism, needless, search, library, callers)
