"""The words that the dialogues of the built-in model are made of.

Names stand nowhere here: they are invented (invented.py)."""


def _words(text):
    return text.split()


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
    grandmother grandfather roommate coach wife husband son daughter""")
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
    "flower": _words("rose tulip lily daisy orchid poppies iris jasmine"),
    "month": _words("January February March April May June July August October November"),
}
SECRETS = _words("password secret codeword passphrase nickname motto")
CODED = _words("safe door phone bike bag garage house locker")
COUNTED = _words("""
    apples books chairs coins cards stamps plants shoes boxes bottles marbles pens eggs candles
    hats keys cups balls stones shells""")
NUMBERS = _words("zero one two three four five six seven eight nine ten eleven twelve")
PLACED = _words("key phone wallet ticket passport book umbrella charger letter map ring hat")
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
STORY_NAMES = _words("Pip Momo Bibi Zizu Tiko Lulu Fenn Rufo Bim Wuk Nubi Dodo")

# What strangers talk about; a prompt of these is none of the model's business.
TOPICS = _words("""
    history music physics football weather money taxes computers software planets animals health
    medicine war politics art film books law love sleep exercise climate energy banks sugar
    dinosaurs volcanoes oceans engines bridges robots rockets chemistry algebra geometry philosophy
    religion travel trains airplanes cooking gardening fashion photography painting sports children
    dreams language grammar poetry databases networks security passwords electricity magnets gravity
    atoms cells viruses vitamins bread wine cheese coffee chocolate pasta chess cards cars bicycles
    boats houses furniture cats dogs birds fish insects trees flowers mountains rivers deserts islands
    cities castles kings queens pirates robots dragons ghosts holidays birthdays weddings jobs""")
COMMON = _words("""
    the be to of and a in that have it for not on with he as you do at this but his by from they we say
    her she or an will my one all would there their what so up out if about who get which go me when
    make can like time no just him know take people into year your good some could them see other than
    then now look only come its over think also back after use two how our work first well way even new
    want because any these give day most us is are was were been has had did said made went more very
    where why through should never world still must life same another while last might great old under
    few between part place case week company system program question number night point home water room
    area money fact month lot right study book eye word business issue side kind head house service
    father power hour game line end member city community president team minute idea body information
    nothing ago lead social whether watch together follow around parent face anything create public
    already speak others read level allow add office spend door health person art sure such change
    million small during always large often important until children run move long night near story""")
