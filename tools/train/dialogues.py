"""Generates the dialogues that the built-in model learns from.

A dialogue is a list of Message. What belongs together - a few facts and the questions
about them, a shopping list, a count, a story - is a thread of exchanges; several threads
are interleaved. Everything follows from the random generator that is handed in.
"""

import re
from collections import namedtuple

import calls
import facts
import invented
import lexicon as lex
import strangers
from facts import MARK, UNMARK, fill

Message = namedtuple("Message", "role text")
# What a dialogue may contain: how many facts, and the chance of each other thread.
Level = namedtuple("Level", "min_facts max_facts extras")
LEVELS = [Level(1, 1, 0.1), Level(1, 2, 0.4), Level(1, 4, 0.8), Level(2, 8, 1.0)]
UNKNOWN = "You have not told me that."
_STARTS = (r"(My|What|The|Where|Who|How|Which|When|Do|Tell|Please|Hello|Hi|Now|So|And|Also|Can|You|Call|There|On|"
           r"Actually|No|Sorry|Wait|Write|Give|Add|Put|Remove|Take|Show|Read|Remember|People|This|Our|Of)\b")


def sentence(text, end="."):
    first = re.search(r"[A-Za-z]", text)
    at = first.start() if first else 0
    return text[:at] + text[at:at + 1].upper() + text[at + 1:] + end


def joined(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def marked(text):
    return MARK + text + UNMARK


def as_typed(rng, text):
    """People drop capitals (of names, too, but then everywhere), full stops and apostrophes."""
    if rng.random() < 0.15 and re.match(_STARTS, text):
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15 and text[-1] in ".?":
        text = text[:-1]
    if rng.random() < 0.1:
        text = text.replace("hat's ", "hats ")
    return text


def exchange(rng, user, assistant):
    return [Message("user", as_typed(rng, user)), Message("assistant", assistant)]


# --- facts ------------------------------------------------------------------------

OPENERS = ["", "", "", "", "", "Hello! ", "Hi, ", "Hello, ", "By the way, ", "Also, ", "Listen: ", "And ", "Well, "]
CHANGE_OPENERS = ["Actually, ", "No, ", "Sorry, ", "Correction: ", "Wait, ", "I was wrong, ", "Oh, ", ""]
ASK_OPENERS = ["", "", "", "", "", "", "Tell me, ", "Now, ", "So, ", "Please, ", "And ", "Quick question: ", "Hi, "]


def acknowledge(told):
    if len(told) == 1 and told[0].kind.name == "name":
        return f"Nice to meet you, {marked(told[0].value)}."
    return f"Noted: {joined([fill(f.kind.answer, f.fields, mark=True) for f in told])}."


def told_text(rng, clauses):
    if len(clauses) > 1 and rng.random() < 0.3:
        return " ".join(sentence(c) for c in clauses)
    return sentence(joined(clauses))


def opened(rng, openers, text):
    opener = rng.choice(openers)
    if opener.endswith("! "):
        return opener + text
    return sentence(opener + (text if text.startswith("I ") else text[0].lower() + text[1:]), "") if opener else text


def tell(rng, told, clauses, openers=OPENERS):
    # A name that begins the text keeps its capital.
    text = told_text(rng, clauses)
    if not clauses[0][:1].isupper():
        text = opened(rng, openers, text)
    return exchange(rng, text, acknowledge(told))


def answer(asked):
    text = joined([fill(f.kind.answer, f.fields, mark=True) for f in asked])
    return text + "." if asked[0].kind.answer.startswith("{") else sentence(text)  # a name is as it was


def ask(rng, asked, questions):
    text = sentence(rng.choice(ASK_OPENERS) + " and ".join(questions), "?")
    return exchange(rng, text, answer(asked))


def ask_unknown(rng, current, taken):
    """Often about another key of a kind that was told."""
    kind, fields = None, None
    if current and rng.random() < 0.6:
        near = rng.choice(current)
        kind, fields = near.kind, facts.draw_key(rng, near, taken)
    if fields is None:
        fact = facts.draw_fact(rng, set(taken))
        kind, fields = fact.kind, fact.fields
    text = sentence(rng.choice(ASK_OPENERS) + fill(rng.choice(kind.ask), fields), "?")
    return exchange(rng, text, UNKNOWN)


def change(rng, fact):
    clause = rng.choice(fact.kind.change + fact.kind.say[:2])
    return tell(rng, [fact], [fill(clause, fact.fields)], CHANGE_OPENERS)


def fact_kinds(rng, n):
    """Mostly a mixture; sometimes several of one kind, which have to be kept apart."""
    if n > 1 and rng.random() < 0.35:
        with_keys = [k for k in facts.KINDS if "k" in k.fields]
        same = rng.choices(with_keys, [k.weight for k in with_keys])[0]
        return [same if rng.random() < 0.6 else None for _ in range(n)]
    return [None] * n


def fact_thread(rng, n_facts):
    taken, current, phrasing = set(), [], []
    for kind in fact_kinds(rng, n_facts):
        fact = facts.draw_fact(rng, taken, kind)
        if fact:
            current.append(fact)
            phrasing.append(facts.draw_phrasing(rng, fact.kind, False))
    turns, untold, told = [], list(range(len(current))), []
    n_asks = len(current) + rng.randint(0, 2)
    while untold or n_asks > 0:
        if untold and rng.random() < (0.65 if told else 0.85):
            group = [untold.pop(0) for _ in range(min(len(untold), rng.choice([1, 1, 1, 2, 2, 3])))]
            clauses = [fill(current[i].kind.say[phrasing[i][0]], current[i].fields) for i in group]
            if rng.random() < 0.1:  # told and asked at once
                i = rng.choice(group)
                question = fill(current[i].kind.ask[phrasing[i][1]], current[i].fields)
                text = told_text(rng, clauses) + " " + sentence(question, "?")
                turns.append(exchange(rng, text, answer([current[i]])))
            else:
                turns.append(tell(rng, [current[i] for i in group], clauses))
            told += group
            continue
        n_asks -= 1
        chance = rng.random()
        if chance < 0.25 or not told:
            turns.append(ask_unknown(rng, [current[i] for i in told], taken))
        elif chance < 0.45:
            i = rng.choice(told)
            changed = facts.draw_change(rng, current[i], taken) if current[i].kind.change else None
            if changed:
                current[i] = changed
                turns.append(change(rng, changed))
                n_asks += 1
        else:
            group = rng.sample(told, min(len(told), 2 if rng.random() < 0.1 else 1))
            questions = [fill(current[i].kind.ask[phrasing[i][1]], current[i].fields) for i in group]
            turns.append(ask(rng, [current[i] for i in group], questions))
    return turns


def echo_turn(rng):
    """Nothing but a copy."""
    words = [rng.choice([invented.name, invented.word, invented.code])(rng) for _ in range(rng.randint(1, 3))]
    text = " ".join(words)
    wish = rng.choice(["Say {}.", "Repeat {}.", "Repeat after me: {}.", "Please say {}.", "Say: {}.", "Echo {}."])
    return [Message("user", wish.format(text)), Message("assistant", marked(text) + ".")]


# --- lists and counts ---------------------------------------------------------------

def list_thread(rng):
    draw, noun = rng.choice([(lambda: invented.one_of(rng, lex.GROCERIES), "shopping list"),
                             (lambda: invented.one_of(rng, lex.TASKS), "to-do list"),
                             (lambda: invented.name(rng), "guest list")])
    def another():
        while (item := draw()) in items:
            pass
        return item
    items = []
    for _ in range(rng.randint(1, 3)):
        items.append(another())
    def state():
        return f"Your {noun}: {marked(joined(items))}." if items else f"Your {noun} is empty."
    start = rng.choice(["Start a {n} with {i}.", "Make a {n}: {i}.", "Please make a {n} with {i}.",
                        "Write a {n} for me: {i}."])
    turns = [exchange(rng, start.format(n=noun, i=joined(items)), state())]
    for _ in range(rng.randint(1, 4)):
        chance = rng.random()
        if chance < 0.35 and len(items) < 6:
            added = another()
            items.append(added)
            say = rng.choice(["Add {i} to my {n}.", "Put {i} on my {n}.", "Please add {i}.", "Also {i}."])
            turns.append(exchange(rng, say.format(i=added, n=noun), state()))
        elif chance < 0.55 and len(items) > 1:
            gone = rng.choice(items)
            items.remove(gone)
            say = rng.choice(["Remove {i} from my {n}.", "Take {i} off my {n}.", "Please remove {i}."])
            turns.append(exchange(rng, say.format(i=gone, n=noun), state()))
        elif chance < 0.8:
            question = rng.choice(["What is on my {n}?", "Read my {n}.", "Show me my {n}."])
            turns.append(exchange(rng, question.format(n=noun), state()))
        else:
            word = lex.NUMBERS[len(items)]
            text = f"There is {marked('one')} entry" if len(items) == 1 else f"There are {marked(word)} entries"
            turns.append(exchange(rng, f"How many entries are on my {noun}?", text + f" on your {noun}."))
    return turns


def count_thread(rng):
    what = rng.choice(lex.COUNTED)
    n = rng.randint(2, 8)
    one = {"boxes": "box"}.get(what, what[:-1])
    def amount(k, mark=False):
        word = marked(lex.NUMBERS[k]) if mark else lex.NUMBERS[k]
        return f"{word} {one if k == 1 else what}"
    turns = [exchange(rng, rng.choice(["Let us count: I have {}.", "I start with {}."]).format(amount(n)),
                      f"You have {amount(n, True)}.")]
    for _ in range(rng.randint(1, 3)):
        step = rng.randint(1, 3)
        chance = rng.random()
        if chance < 0.4 and n + step <= 12:
            n += step
            say = rng.choice(["I get {} more.", "Now add {}.", "Somebody gives me {} more."])
        elif chance < 0.8 and n - step >= 0:
            n -= step
            say = rng.choice(["I lose {}.", "I give away {}.", "Now take away {}."])
        else:
            turns.append(exchange(rng, f"How many {what} is that?", f"You have {amount(n, True)}."))
            continue
        turns.append(exchange(rng, say.format(lex.NUMBERS[step]), f"Now you have {amount(n, True)}."))
    return turns


# --- tools --------------------------------------------------------------------------

def answered(rng, question, call, result, reply):
    return [Message("user", as_typed(rng, question)), Message("assistant", call), Message("tool", result),
            Message("assistant", reply)]


def clock_turn(rng, tools):
    question = rng.choice(["What time is it?", "Can you tell me the time?", "How late is it?",
                           "What's the time?", "Tell me the time.", "Do you know what time it is?"])
    if "clock" not in tools:
        return exchange(rng, question, "I have no clock here.")
    time = "%02d:%02d" % (rng.randint(0, 23), rng.randint(0, 59))
    result = rng.choice(["%s", "%s", '{"time": "%s"}', "%s:00", '{"result": "%s"}']) % time
    return answered(rng, question, calls.call("clock", "{}"), result, f"It is {marked(time)}.")


def calculator_turn(rng, tools):
    word, sign, apply = rng.choice([("times", "*", lambda a, b: a * b), ("plus", "+", lambda a, b: a + b),
                                    ("minus", "-", lambda a, b: a - b)])
    a, b = rng.randint(2, 999), rng.randint(2, 99)
    if rng.random() < 0.5:
        a = rng.randint(2, 99)
    shown = rng.choice([f"{a} {word} {b}", f"{a} {word} {b}", f"{a} {sign} {b}", f"{a}{sign}{b}"])
    question = rng.choice(["What is {}?", "How much is {}?", "Calculate {}.", "Compute {}.", "Please work out {}."])
    if "calculator" not in tools:
        return exchange(rng, question.format(shown), "I have no calculator here.")
    value = str(apply(a, b))
    result = rng.choice(["%s", "%s", '{"result": %s}', '{"value": %s}']) % value
    expression = marked(f"{a}{sign}{b}")
    return answered(rng, question.format(shown), calls.call("calculator", '{"expression": "%s"}' % expression),
                    result, f"The result is {marked(value)}.")


def other_tool_turn(rng, tools):
    """Any tool, by its name."""
    tool = tools[rng.choice(list(tools))]
    text, call = calls.ask_for(rng, tool, marked)
    return answered(rng, text, call, *calls.result_of(rng, marked))


def tool_turn(rng, tools):
    if not tools:
        return rng.choice([clock_turn, calculator_turn])(rng, tools)
    turns = {"clock": clock_turn, "calculator": calculator_turn}
    known = [turns[name] for name in tools if name in turns]
    if known and rng.random() < 0.6:
        return rng.choice(known)(rng, tools)
    return other_tool_turn(rng, tools)


def system_message(rng, tools):
    text = ""
    if rng.random() < (0.3 if tools else 0.15):
        text = rng.choice(["You are a helpful assistant.", "You are Weft.", "Answer in one sentence.",
                           "Be brief.", "You are a friendly helper.", strangers.prompt(rng)])
    if tools:
        text += ("\n" if text else "") + "Tools:\n" + "\n".join(t.line() for t in tools.values())
    return [Message("system", text)] if text else []


# --- stories and small talk -----------------------------------------------------------

def story_turn(rng):
    animal, other = rng.sample(lex.STORY_ANIMALS, 2)
    if rng.random() < 0.4:
        animal = invented.one_of(rng, lex.ANIMALS)
    adjective = rng.choice(lex.STORY_ADJECTIVES)
    wish = rng.choice(["Tell me a story about a {a}.", "Tell a short story about a {a} named {n}.",
                       "Can you tell me a story?", "I want a story about a {a} called {n}.",
                       "Tell me a story."])
    name, friend = rng.sample(lex.STORY_NAMES, 2)
    if "{n}" in wish:
        name = invented.name(rng)
    find, colour = rng.choice(lex.STORY_FINDS), rng.choice(lex.COLOURS)
    asked, m = "{a}" in wish, marked
    lines = [f"Once there was a {adjective} {m(animal) if asked else animal} "
             f"named {m(name) if '{n}' in wish else name}.",
             f"{m(name)} lived in {rng.choice(lex.STORY_PLACES)}.",
             rng.choice([f"One day {m(name)} found a {colour} {find}.",
                         f"One morning {m(name)} saw a {colour} {find} in the grass."]),
             rng.choice([f"It belonged to {friend}, a {other}.",
                         f"A {other} named {friend} had lost the {m(find)}."]),
             rng.choice([f"So {m(name)} gave the {m(find)} to {m(friend)}.",
                         f"But {rng.choice(lex.STORY_TROUBLES)}. {m(friend)} and {m(name)} helped each other."]),
             rng.choice(lex.STORY_ENDS)]
    text = " ".join(lines)
    wish = fill(wish.replace("{a}", animal).replace("{n}", name), {"v": ""})
    return exchange(rng, wish, fill(text.replace("{", "").replace("}", ""), {"v": ""}))


SMALL_TALK = [
    (["Hello!", "Hi!", "Hello", "Hi there.", "Hey!", "Good morning.", "Hello there!", "Good evening."],
     "Hello! Tell me something and I will remember it."),
    (["How are you?", "How are you today?", "Are you well?", "How do you do?"], "I am well, thank you."),
    (["Thank you.", "Thanks!", "Thanks a lot.", "Great, thank you.", "Thank you very much!"], "You are welcome."),
    (["What can you do?", "What are you good at?", "How can you help me?", "What do you know?"],
     "I can remember what you tell me, keep lists and tell short stories."),
    (["Who are you?", "What is your name?", "What are you?", "Are you a model?", "Introduce yourself."],
     "I am Weft, a very small language model."),
    (["Goodbye!", "Bye!", "See you.", "Good night."], "Goodbye!"),
    (["I am tired.", "I am sad today.", "I had a long day."], "I am sorry to hear that."),
    (["I am happy.", "I had a good day.", "That is funny."], "I am glad to hear that."),
    (["Okay.", "Good.", "I see.", "Nice.", "Yes.", "No.", "Cool."], "What else can I do for you?"),
    (["Can you remember things?", "Do you remember what I told you?"],
     "Yes, I remember what you told me. Ask me."),
]


def small_talk_turn(rng):
    users, reply = rng.choice(SMALL_TALK)
    return exchange(rng, rng.choice(users), reply)


def stranger_turn(rng):
    ask_for = strangers.long_prompt if rng.random() < 0.04 else strangers.prompt
    return exchange(rng, ask_for(rng), strangers.OTHER)


# --- whole dialogues --------------------------------------------------------------------

def interleave(rng, threads):
    """Merges the threads; the order within each stays."""
    queues, out = [list(t) for t in threads if t], []
    while queues:
        queue = rng.choices(queues, [len(q) for q in queues])[0]
        out += queue.pop(0)
        queues = [q for q in queues if q]
    return out


def extra_threads(rng, tools, chance):
    threads = []

    def some(share, turn, longest):
        if rng.random() < share * chance:
            threads.append([turn() for _ in range(rng.randint(1, longest))])

    some(0.35, lambda: small_talk_turn(rng), 2)
    some(0.5, lambda: stranger_turn(rng), 3)
    some(0.15, lambda: echo_turn(rng), 2)
    some(0.1, lambda: story_turn(rng), 1)
    some(0.9 if tools else 0.06, lambda: tool_turn(rng, tools), 2)
    if rng.random() < 0.2 * chance:
        threads.append(list_thread(rng))
    if rng.random() < 0.12 * chance:
        threads.append(count_thread(rng))
    return threads


def make_dialogue(rng, level):
    """A training dialogue: a list of Message."""
    if level.max_facts == 1 and rng.random() < 0.35:
        return sum((rng.choice([echo_turn, echo_turn, stranger_turn])(rng) for _ in range(rng.randint(1, 3))), [])
    tools = {}
    if rng.random() < 0.3 * level.extras:
        tools = {tool.name: tool for tool in calls.some_tools(rng)}
        if rng.random() < 0.4:  # nothing but calls
            return system_message(rng, tools) + sum((tool_turn(rng, tools) for _ in range(rng.randint(1, 3))), [])
    threads = extra_threads(rng, tools, level.extras)
    if not threads or rng.random() < 0.75:
        threads.append(fact_thread(rng, rng.randint(level.min_facts, level.max_facts)))
    return system_message(rng, tools) + interleave(rng, threads)


Recall = namedtuple("Recall", "messages checks")  # checks: index of a reply -> value, rivals


def make_recall_test(rng, n_facts, n_turns):
    """A dialogue of held-out phrasings, n_turns user messages, that tells n_facts and asks for as
    many of them as there are turns left, at least half of all turns."""
    taken, told = set(), []
    while len(told) < n_facts:
        fact = facts.draw_fact(rng, taken)
        if fact is None:
            return make_recall_test(rng, n_facts, n_turns)
        told.append((fact, facts.draw_phrasing(rng, fact.kind, True)))
    n_asks = max(n_turns - n_facts, n_turns // 2)
    sizes = [1] * (n_turns - n_asks)
    while sum(sizes) < n_facts:
        sizes[rng.randrange(len(sizes))] += 1
    messages, at, checks = [], 0, {}
    for size in sizes:
        group = told[at:at + size]
        at += size
        clauses = [fill(f.kind.say[p[0]], f.fields) for f, p in group]
        messages += tell(rng, [f for f, _ in group], clauses)
    for fact, phrasing in rng.sample(told, min(n_asks, n_facts)):
        messages += ask(rng, [fact], [fill(fact.kind.ask[phrasing[1]], fact.fields)])
        rivals = [f.value for f, _ in told if f.value != fact.value]
        checks[len(messages) - 1] = (fact.value, rivals)
    return Recall(messages, checks)


def plain(text):
    return text.replace(MARK, "").replace(UNMARK, "")
