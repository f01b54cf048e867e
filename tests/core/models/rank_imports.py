"""Imports a rank's modules and refreshes numba's contexts before ranks are forked."""

import transformers.models.llama.modeling_llama  # noqa: F401
from numba.core.registry import cpu_target

import core.models.native.forward
import core.models.ranks.follower  # noqa: F401

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
