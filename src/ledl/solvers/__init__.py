"""The mathematics: pure functions, arrays in and arrays out, in the paper's letters."""
