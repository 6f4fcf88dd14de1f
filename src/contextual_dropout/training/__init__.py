"""The objective, which takes a closure and returns a loss, its gradient estimators and KL schedules."""
