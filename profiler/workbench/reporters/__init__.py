"""The answer of each verb: a module of the verb's name says what stands in each format."""
