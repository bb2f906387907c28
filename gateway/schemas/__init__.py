"""Wire models of the OpenAI API, as pydantic sees them."""
