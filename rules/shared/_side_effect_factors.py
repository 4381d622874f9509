"""What goes gives back more than the time of its own rows, by measured pairs: factors for the high end of a saving."""

from __future__ import annotations

from advisor.api import constant

# Lines of the script no longer push the model's data out of the caches; the engine keeps fewer records. Measured places
# gave back up to a tenth more.
BESIDES = constant("besides.lines").value
# A thread beside the loop makes caches cold and cores change hands, too; a forward pass that packs what it saves does
# so at each op. Measured pairs gave back up to a fifth more.
BESIDES_MUCH = constant("besides.threads_and_packing").value
