"""Tools: a clock, a calculator, and others with names that nobody has heard; how they are asked
for, called, and what is said of their results."""

import invented
import lexicon as lex

_VERBS = "get set find read write open send list make check show play add delete search run fetch move save".split()
_NOUNS = ("weather file mail user song page order price note image map ticket book light door room table task "
          "message report account event photo number list contact").split()
_PARAMETERS = "name city path query text id title user key value date place topic word".split()


def call(name, arguments):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (name, arguments)


class Tool:
    """As the template lists it: name(parameter, ...)."""

    def __init__(self, name, parameters):
        self.name, self.parameters = name, parameters

    def line(self):
        return f"{self.name}({', '.join(self.parameters)})"


def a_tool(rng, taken):
    while True:
        words = [invented.one_of(rng, _VERBS, 0.8), invented.one_of(rng, _NOUNS, 0.7)]
        if rng.random() < 0.25:
            words = words[1:]
        name = rng.choice(["_", "_", "_", "-"]).join(words)
        if rng.random() < 0.15:
            name = words[0] + "".join(w.capitalize() for w in words[1:])
        if name not in taken and len(name) > 2:
            break
    n = rng.choice([0, 0, 1, 1, 1, 2])
    parameters = []
    while len(parameters) < n:
        parameter = invented.one_of(rng, _PARAMETERS, 0.8)
        if parameter not in parameters:
            parameters.append(parameter)
    return Tool(name, parameters)


def clock(rng):
    return Tool("clock", rng.choice([[], [], ["timezone"], ["format"]]))


def calculator(rng):
    return Tool("calculator", ["expression"])


def some_tools(rng):
    chance = rng.random()
    if chance < 0.45:
        tools = rng.choice([[clock], [calculator], [clock, calculator]])
        tools = [make(rng) for make in tools]
    else:
        tools = []
    while not tools or rng.random() < 0.4:
        tools.append(a_tool(rng, {t.name for t in tools}))
    rng.shuffle(tools)
    return tools


def _a_value(rng):
    return rng.choice([invented.name, invented.word, invented.code])(rng)


def ask_for(rng, tool, mark):
    """What a user says to have it called, and the call."""
    values = {p: _a_value(rng) for p in tool.parameters}
    spoken = tool.name.replace("_", " ").replace("-", " ")
    plain = rng.choice(["Call {}.", "Use {}.", "Please use {}.", "Use the tool {}.", "Please call {}.", "Run {}.",
                        "Use the {} tool.", "Can you call {}?", "Call the {} tool.", "{}", "Try {}."])
    if not values:
        called = tool.name if rng.random() < 0.75 else spoken
        return plain.format(called), call(mark(tool.name), "{}")
    arguments = "{%s}" % ", ".join(f'"{mark(p)}": "{mark(v)}"' for p, v in values.items())
    if len(values) == 1 and rng.random() < 0.45:
        (value,) = values.values()
        text = rng.choice(["{} {}", "{} of {}", "{} for {}", "{} in {}", "What is the {} of {}?", "What is the {} in {}?",
                           "Please {} {}.", "Can you {} {}?", "Show me the {} of {}."])
        if text[0] != "{" and text.startswith(("What", "Show")):
            spoken = spoken.split(" ", 1)[-1]
        text = text.format(spoken, value)
        return text[0].upper() + text[1:], call(mark(tool.name), arguments)
    one = rng.choice(["{p} {v}", "{p} {v}", "{p} = {v}", "{p}: {v}", "the {p} {v}"])
    told = rng.choice([" and ", ", "]).join(one.format(p=p, v=v) for p, v in values.items())
    text = rng.choice(["Call {} with {}.", "Use {} with {}.", "Please call {} with {}.", "Use the {} tool with {}.",
                       "Run {} with {}."])
    return text.format(tool.name, told), call(mark(tool.name), arguments)


def result_of(rng, mark):
    """What a tool returns, and what is said then."""
    value = rng.choice([invented.name, invented.word, invented.code,
                        lambda r: f"{r.choice(lex.COLOURS)} {invented.word(r)}", lambda r: str(r.randint(-40, 9999))])(rng)
    text = rng.choice(["%s", "%s", "%s", '{"result": "%s"}', '{"value": "%s"}']) % value
    return text, f"The result is {mark(value)}."
