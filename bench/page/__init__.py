"""The page measured in a real Chromium. Only this and the `page` suite look at ui and storage."""
