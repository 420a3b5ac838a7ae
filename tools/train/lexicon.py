"""The words that the dialogues of the built-in model are made of."""


def _words(text):
    return text.split()


NAMES = _words("""
    Mira Tom Anna Ben Clara David Ella Felix Grace Hugo Ida Jonas Kate Leo Maya Nora Oscar Paula
    Quentin Rosa Sam Tessa Uma Victor Wanda Xavier Yara Zoe Alma Boris Cora Dora Emil Fiona Gustav
    Hanna Igor Jana Karl Lena Marco Nina Otto Petra Ravi Sofia Theo Ulla Vera Willem Yusuf Zara
    Amir Bella Carlos Daria Elias Freya Greta Henry Iris Jack Kira Lucas Marta Nils Olga Pablo
    Rita Simon Tara Urban Viola Walter Yann Zelda Alice Bob Carol Dan Eve Frank Gina Harry Ivan
    Julia Kevin Laura Mark Nadia Oliver Peter Rachel Steve Tina Emma John Mary Paul Lisa Max Eric
    Susan Adam Sara""")
SYLLABLES = _words("""
    ba be bi bo da de di do fa fe ga go ha he jo ka ke ki ko la le li lo lu ma me mi mo na ne ni no
    pa pe pi ra re ri ro sa se si so ta te ti to va ve vi wa we ya yo za ze zi zo""")
ENDINGS = _words("n r l s th m nd rt x k ra la na ra mi no ri ta")

COLOURS = _words("""
    red blue green yellow black white brown grey orange purple pink golden silver violet turquoise
    beige crimson cream""")
THINGS = _words("""
    boat bike car door hat coat house kite lamp chair table cup bag bowl scarf shirt sofa tent
    umbrella wallet piano guitar jacket van truck fence roof phone watch backpack ring drum""")
HELD = _words("""
    kite lamp drum ring map book key ball compass violin trumpet camera candle rope knife basket
    mirror pencil flute clock puzzle shovel hammer bell whistle telescope coin feather blanket
    notebook""")
ANIMALS = _words("""
    dog cat horse parrot rabbit hamster turtle goat pony goldfish lizard canary pig duck snake
    donkey ferret mouse""")
RELATIONS = _words("""
    sister brother mother father friend teacher neighbour boss cousin uncle aunt doctor dentist
    grandmother grandfather roommate coach""")
PLACES = _words("""
    Oslo Paris Rome Lima Cairo Delhi Tokyo Berlin Madrid Vienna Dublin Prague Lisbon Athens Boston
    Quito Nairobi Sydney Geneva Hamburg Warsaw Helsinki Seoul Toronto Naples Zurich Bergen
    Porto Krakow London""")
JOBS = _words("""
    baker teacher nurse pilot farmer carpenter gardener painter cook tailor driver plumber
    librarian fisher singer builder dentist barber waiter potter""")
FAVOURITES = {
    "fruit": _words("apple pear plum cherry banana mango melon peach grape fig lemon kiwi"),
    "drink": _words("tea coffee milk cocoa juice water lemonade cider soda"),
    "food": _words("soup pasta rice pizza bread cheese salad pancakes noodles beans curry stew"),
    "game": _words("chess tennis football golf poker hockey darts bowling checkers rugby"),
    "season": _words("spring summer autumn winter"),
    "colour": COLOURS[:15],
    "animal": ANIMALS[:12],
    "flower": _words("rose tulip lily daisy orchid poppy iris jasmine"),
    "month": _words("January February March April May June July August October November"),
}
COUNTED = _words("""
    apples books chairs coins cards stamps plants shoes boxes bottles marbles pens eggs candles
    hats keys cups balls stones shells""")
NUMBERS = _words("zero one two three four five six seven eight nine ten eleven twelve")
PLACED = _words("keys glasses phone wallet gloves ticket passport book umbrella charger scissors "
                "letter")
SPOTS = _words("drawer kitchen car bag garage bathroom hall cupboard attic cellar garden office "
               "basket bedroom shed closet")
EVENTS = _words("exam party meeting wedding concert interview trip lesson picnic appointment")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
GROCERIES = _words("""
    milk eggs bread tea rice butter cheese apples carrots onions sugar flour coffee honey salt pasta
    soap beans tomatoes potatoes jam yogurt garlic pepper""")
TASKS = _words("sweep cook read paint wash iron write swim run bake study call")

STORY_ANIMALS = _words("fox bear owl hare mouse wolf frog cat dog duck hedgehog badger crow deer")
STORY_ADJECTIVES = _words("small brave old clever shy kind curious lazy merry quiet hungry young")
STORY_PLACES = ["a deep forest", "a green valley", "an old mill", "a house by the sea",
                "a tall tree", "a village in the hills", "a garden behind the school",
                "a cave near the river"]
STORY_FINDS = _words("key map lantern bell coin feather stone box mirror ring boat flute")
STORY_TROUBLES = [
    "a storm came and the bridge broke", "the river rose and the path was gone",
    "the night was dark and the way home was lost", "snow fell and everything was white",
    "a strong wind blew the roof away", "the well ran dry",
]
STORY_ENDS = [
    "From that day on they were friends.", "And they laughed until the moon came up.",
    "Then they shared a warm soup and slept well.", "Everyone in the village heard of it.",
    "And that is the end of the story.", "They never forgot that day.",
]


def all_words():
    """Every word that may be a value, without the parts of invented names."""
    lists = [NAMES, COLOURS, THINGS, HELD, ANIMALS, RELATIONS, PLACES, JOBS, COUNTED, NUMBERS, PLACED,
             SPOTS, EVENTS, DAYS, GROCERIES, TASKS, STORY_ANIMALS, STORY_ADJECTIVES, STORY_FINDS]
    return sorted({word for words in lists + list(FAVOURITES.values()) for word in words})
