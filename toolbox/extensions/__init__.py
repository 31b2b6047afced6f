"""Extensions: the protocols that they implement, and how they are found, imported and described."""
