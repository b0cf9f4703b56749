"""All cases of the attack suite."""

import dataclasses

from tests.hostile.model_attacks.generated import GENERATED_HONEST, GENERATED_HOSTILE
from tests.hostile.model_attacks.methods_honest import METHODS_HONEST
from tests.hostile.model_attacks.methods_hostile import METHODS_HOSTILE
from tests.hostile.model_attacks.oracle import all_cases
from tests.hostile.model_attacks.stock_honest import STOCK_HONEST
from tests.hostile.model_attacks.stock_hostile import STOCK_HOSTILE

HOSTILE = [*STOCK_HOSTILE, *METHODS_HOSTILE, *GENERATED_HOSTILE]
HONEST = [*STOCK_HONEST, *METHODS_HONEST, *GENERATED_HONEST]
SUITE = [*all_cases(), *(dataclasses.replace(c, initialisations=1) for c in [*HOSTILE, *HONEST])]
