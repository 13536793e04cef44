"""OneFlow 0.6's names: `flow.utils.vision.datasets` and `transforms` are those of `flow.vision`."""

import sys

from miniflow.vision import datasets, transforms

# for `import miniflow.utils.vision.transforms as transforms`
sys.modules.update({f"{__name__}.datasets": datasets, f"{__name__}.transforms": transforms})
