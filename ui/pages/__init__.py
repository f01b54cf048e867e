"""One file per tab: layout, handlers, wiring; and what the tabs share."""
