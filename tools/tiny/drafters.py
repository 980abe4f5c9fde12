"""The drafters by name."""

from dflash2 import DFlash2
from dspark import DSpark

DRAFTERS = {drafter.name: drafter for drafter in (DFlash2, DSpark)}
