"""The word lists that the generated tasks draw from, and made-up words."""

import random

WORDS = """
acorn actor album alley almond amber anchor angle ankle apple apron arch arena armor arrow artist
atlas attic autumn award badge bagel baker balcony bamboo banana band banjo bank barn basin basket
beach beacon bean bear beaver bed bee beetle bell belt bench berry bicycle bird biscuit blade
blanket blossom board boat bolt bone book boot border bottle bottom bowl box branch brass bread
brick bridge broom brother brush bucket bubble bus bush butter button cabin cable cactus cake camel
camera camp canal candle candy canoe canyon captain car card carpet carrot castle cat cave cello
center chain chair chalk cheese cherry chest chicken chimney church cider circle city clay cliff
clock cloud clover coach coal coast coat coffee coin collar color comb comet copper coral corn
corner cotton couch cousin cow crab cradle crane crayon creek cricket crow crown cup curtain cushion
daisy dance dawn deck deer desert desk dinner dish doctor dog doll dolphin donkey door dragon drawer
dress drum duck dust eagle ear earth east echo eel egg elbow elm engine evening eye fabric face
falcon farm father feather fence fern ferry field fig finger fire fish flag flame flower flute fog
forest fork fox frame friend frog fruit galaxy garden garlic gate ghost giant gift ginger giraffe
glacier glass globe glove goat gold goose grape grass gravel guitar hammer hand harbor harp hat hawk
hazel heart hedge hill hinge honey hook horn horse hotel house ice ink insect iron island ivory
jacket jam jar jewel judge juice jungle kettle key kitchen kite kitten knee knife ladder lake lamb
lamp lantern laurel lawn leaf leather lemon letter library light lily linen lion lizard lobster lock
log lunch machine magnet mango maple marble market mask meadow melon metal milk mill mirror monkey
moon morning mother mountain mouse mud museum mushroom nail napkin neck needle nest net night north
notebook nut oak oar oat ocean office oil olive onion orange orchid otter oven owl ox paddle paint
palace palm panda paper parade park parrot path peach peanut pear pearl pebble pen pencil pepper
piano picture pie pigeon pillow pilot pine pipe planet plate plum pocket poem pond pony potato
prince pumpkin purse puzzle queen quilt rabbit radio rail rain raven ribbon rice ring river road
robin rock roof room rope rose ruler saddle sail salad salt sand sandal school scissors sea seed
shadow sheep shelf shell ship shirt shoe shovel silk silver sister sky sled snail snake snow soap
sock soup south spade spider spoon spring squirrel stair star station stone storm stove straw street
sugar summer sun swan table tail tea teacher tent thread thumb ticket tiger toast tomato tooth tower
toy train tree trumpet truck tulip tunnel turkey turtle umbrella uncle valley vase velvet village
vine violin voice wagon wall walnut water wave weather web well west whale wheat wheel whistle
willow wind window wing winter wolf wood wool yard yarn year zebra
""".split()

FIRST_NAMES = """
Ada Alan Alice Amir Anna Arjun Aya Ben Bruno Carla Chen Clara Cora Daniel David Diego Dora Elena Eli
Emil Emma Eva Felix Fiona Frida George Grace Hana Hugo Ida Igor Ines Ivan Jack Jana Jonas Julia Karl
Kenji Lara Leo Lena Lily Lucas Luis Maria Marco Maya Mei Mia Milo Nadia Nina Noah Nora Olga Oliver
Omar Oscar Otto Paul Petra Priya Rosa Ruth Sam Sara Sofia Sven Tara Theo Tom Uma Vera Victor Wei
Yara Yuki Zoe
""".split()

LAST_NAMES = """
Adams Baker Berg Brown Carter Clark Cole Costa Cruz Davis Evans Fischer Garcia Gray Hall Hill Ito
Jones Kim Klein Lee Lopez Mason Meyer Moore Nair Novak Olsen Park Patel Perez Price Reed Rossi Sato
Silva Smith Stone Tanaka Taylor Turner Wagner Walker Wang Weber White Wood Young
""".split()

CITIES = """
Accra Athens Berlin Bergen Bogota Boston Cairo Chicago Dakar Delhi Denver Dublin Geneva Hanoi
Helsinki Jakarta Kyoto Lagos Lima Lisbon London Madrid Milan Montreal Moscow Mumbai Nairobi Oslo
Paris Prague Quito Riga Rome Santiago Seoul Sofia Sydney Tallinn Tokyo Toronto Tunis Venice Vienna
Warsaw Zurich
""".split()

COLORS = "black blue brown gold gray green orange pink purple red silver white yellow".split()

JOBS = """
actor architect artist baker biologist carpenter chef dentist doctor driver engineer farmer gardener
journalist judge lawyer librarian mechanic musician nurse painter pilot plumber poet programmer
sailor singer tailor teacher writer
""".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

MONTHS = """
January February March April May June July August September October November December
""".split()

ONSETS = "b c d f g h j k l m n p r s t v w z br ch cr dr fl gr kl pl pr sh sk sl st th tr".split()
VOWELS = "a e i o u a e i o ai ea oo ou".split()
CODAS = " l m n r s t x nd rk st ck".split(" ")


def made_up_word(rng: random.Random) -> str:
    """A pronounceable word of two or three syllables that is in no dictionary."""
    syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.choice((2, 2, 3)))]
    return "".join(syllables) + rng.choice(CODAS)


def code(rng: random.Random) -> str:
    """A short code such as K7QX, kestrel-42, 8f3a or zorvita."""
    kind = rng.randrange(6)
    if kind == 0:
        return "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=rng.randint(3, 6)))
    if kind == 1:
        return f"{rng.choice(WORDS)}-{rng.randint(1, 999)}"
    if kind == 2:
        return "".join(rng.choices("0123456789abcdef", k=rng.randint(4, 8)))
    if kind == 3:
        return f"{rng.choice(WORDS)}-{rng.choice(WORDS)}"
    if kind == 4:
        return f"{rng.choice('ABCDEFGHJKLMNPRSTUVWXYZ')}{rng.randint(10, 9999)}"
    word = made_up_word(rng)
    return rng.choice((word, word.capitalize(), word.upper()))
