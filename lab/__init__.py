"""The laboratory: studies, measured cell by cell. Of the project's packages it imports only
core."""
