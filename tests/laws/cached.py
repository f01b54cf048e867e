"""The bundled models after one prefix, with all logits computed only once."""

from collections.abc import Sequence

import torch

from core.models.hf_model import HfModel
from core.models.protocol import CACHED, Feed, chain
from tests.fakes import TableModel

AT_ONCE = 256
LIKELY = 1e-3


class CachedModel(TableModel):
    """Keeps a loaded model's logits after `prefix`, and after one more token. Cuts a longer
    context: tests compare only the first two tokens of a round."""

    def __init__(self, model: HfModel, prefix: Sequence[int]) -> None:
        super().__init__(model.info.name, model.vocab_size, lambda context: (), 1024)
        self.info = model.info
        self._model, self._prefix = model, tuple(prefix)
        self._row = model.open_row()
        model.forward([chain(self._row, prefix[:-1], last_only=True)])
        model.commit(self._row, range(len(prefix) - 1))
        self._logits[self._prefix] = model.forward([chain(self._row, prefix[-1:])])[0][0]
        model.commit(self._row, [0])
        probabilities = self._logits[self._prefix].softmax(dim=-1)
        self._add((probabilities > LIKELY).nonzero().flatten().tolist())

    def _logarithms(self, context: tuple[int, ...]) -> torch.Tensor:
        size = len(self._prefix)
        if len(context) < size:
            return self._logits[self._prefix]  # in the prefill, whose logits are not read
        key = context[: size + 1]
        if key not in self._logits:
            self._add([key[-1]])
        return self._logits[key]

    def forget(self) -> None:
        self._model.close_row(self._row)

    def _add(self, token_ids: Sequence[int]) -> None:
        for i in range(0, len(token_ids), AT_ONCE):
            part = token_ids[i : i + AT_ONCE]
            rows = self._model.forward([Feed(self._row, part, [CACHED] * len(part))])[0]
            self._model.commit(self._row, [])
            self._logits.update({(*self._prefix, t): rows[j] for j, t in enumerate(part)})
