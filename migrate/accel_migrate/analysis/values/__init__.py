"""What each name holds to training (model, optimizer, loader ...), where that was made, and what a loss runs through."""
