"""Frame gaps are measured by bench/page/gaps.py; tests know them by this name."""

from __future__ import annotations

from bench.page.gaps import main, measure

__all__ = ["measure"]

if __name__ == "__main__":
    main()
