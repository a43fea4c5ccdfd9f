//! Pure decisions: state machines, plans, conclusions, ranking, retries.
