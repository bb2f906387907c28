"""Small chat templates, each with what the templates of one family do and demand of tools."""

# Qwen, Hermes: calls in tags with the arguments as an object, results in the user's turn.
HERMES = """
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'Tools:' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\nCall them as <tool_call>json</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant' }}
{%- if m.content or not m.tool_calls %}{{- '\\n' + m.content }}{%- endif %}
{%- for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif not (m.role == 'system' and loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

# Llama 3: one call a message, which has no text then; results from "ipython".
LLAMA = """
{{- bos_token }}
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}
{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system }}
{%- if tools %}{{- '\\nAnswer with {"name": function name, "parameters": object}.' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson(indent=4) }}{%- endfor %}{%- endif %}
{{- '<|eot_id|>' }}
{%- for m in messages %}
{%- if 'tool_calls' in m %}
{%- if m.tool_calls | length != 1 %}
{{- raise_exception('This model only takes one tool call at once') }}{%- endif %}
{%- set call = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name }}
{{- '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- elif m.role == 'tool' or m.role == 'ipython' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}{{- m.content | tojson }}
{{- '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

# Mistral: turns that alternate, ids of nine letters and digits, whole functions as JSON.
MISTRAL = """
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}
{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for m in rest %}{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
{%- if (m.role == 'user') != (ns.index % 2 == 0) %}
{{- raise_exception('conversation roles must alternate') }}{%- endif %}
{%- set ns.index = ns.index + 1 %}{%- endif %}{%- endfor %}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for m in rest %}
{%- if m.role == 'user' %}
{%- if tools and m == users[-1] %}
{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST]' + (system + '\\n\\n' if system and m == users[-1] else '') + m.content + '[/INST]' }}
{%- elif m.tool_calls %}{{- '[TOOL_CALLS][' }}
{%- for call in m.tool_calls %}
{%- if not call.id is defined or call.id | length != 9 %}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
{{- ', ' if not loop.last else ']' + eos_token }}{%- endfor %}
{%- elif m.role == 'assistant' %}{{- m.content + eos_token }}
{%- elif m.role == 'tool' %}
{%- if not m.tool_call_id is defined or m.tool_call_id | length != 9 %}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{%- endif %}
{{- '[TOOL_RESULTS]{"content": ' + (m.content | tojson) + ', "call_id": "' + m.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}
{%- else %}{{- raise_exception('Only user, assistant and tool roles are supported') }}{%- endif %}
{%- endfor %}
"""

# Granite 3: a role of its own for the tools, a list of calls after a token.
GRANITE = """
{%- if tools %}{{- '<|start_of_role|>available_tools<|end_of_role|>' }}
{{- tools | tojson(indent=2) }}{{- '<|end_of_text|>\\n' }}{%- endif %}
{%- for m in messages %}
{{- '<|start_of_role|>' + ('tool_response' if m.role == 'tool' else m.role) + '<|end_of_role|>' }}
{%- if m.tool_calls %}{{- m.content + '<|tool_call|>[' }}
{%- for call in m.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else
    call.function.arguments | tojson }}{{- '}' }}{{- ', ' if not loop.last }}{%- endfor %}
{{- ']' }}
{%- else %}{{- m.content }}{%- endif %}{{- '<|end_of_text|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
"""

# Phi 4 mini: the tools beside the system's content, and nothing for calls.
PHI = """
{%- for m in messages %}
{%- if m.role == 'system' and m.tools %}
{{- '<|system|>' + m.content + '<|tool|>' + m.tools + '<|/tool|><|end|>' }}
{%- else %}{{- '<|' + m.role + '|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}
"""

# Gemma: no system, no tools, turns that alternate.
GEMMA = """
{%- if messages[0].role == 'system' %}
{{- raise_exception('System role not supported') }}{%- endif %}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}
{{- m.content | trim }}{{- '<end_of_turn>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}
"""

# Qwen 3 Coder and others: each argument apart.
ITEMS = """
{%- for tool in tools or [] %}{{- tool.function.name }};{%- endfor %}
{%- for m in messages %}{{- '<|' + m.role + '|>' + m.content }}
{%- for call in m.tool_calls or [] %}{{- '<tool_call>\\n<function=' + call.function.name + '>' }}
{%- for key, value in call.function.arguments | items %}
{{- '<parameter=' + key + '>' }}{{- value }}{{- '</parameter>' }}{%- endfor %}
{{- '</function>\\n</tool_call>' }}{%- endfor %}{%- endfor %}
"""

# Content as parts only, as of models that see images.
PARTS = """
{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}
{%- for m in messages %}{{- '<|' + m.role + '|>' }}
{%- for part in m.content %}{%- if part.type == 'text' %}{{- part.text }}{%- endif %}{%- endfor %}
{%- for call in m.tool_calls or [] %}{{- '<tool_call>' }}
{{- call.function.name }}{{- call.function.arguments | tojson }}{{- '</tool_call>' }}{%- endfor %}
{%- endfor %}
"""

# Generic: whatever role there is.
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

TEMPLATES = {
    "hermes": HERMES,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "granite": GRANITE,
    "phi": PHI,
    "gemma": GEMMA,
    "items": ITEMS,
    "parts": PARTS,
    "chatml": CHATML,
}
