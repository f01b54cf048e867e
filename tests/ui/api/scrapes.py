"""A scrape of `/metrics`, read by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def __getitem__(self, name: str) -> float:
        return self.one(name)

    def one(self, name: str, **labels: str) -> float:
        results = [s for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        (sample,) = results
        return float(sample.value)
