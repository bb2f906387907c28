"""The formats of JSON Schema that are regular languages, each as its RFC defines it.

Left out is what the usual checkers refuse though the RFC has it (see LEFT OUT).
"""

from functools import cache

from grammar.schema.patterns import parse_pattern
from grammar.schema.regex import Regex, both, length_between

# LEFT OUT: the year 0000; leap seconds; in an IRI characters beyond the BMP and shortened IPv6
# addresses; in URI templates variables that begin with a percent sign, and lengths of four digits.
YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
LEAP_YEAR = f"(?:[0-9]{{2}}{FOURTH}|{FOURTH}00)"
MONTH_AND_DAY = (
    "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    "|(?:0[13578]|1[02])-31)"
)
DATE = f"(?:{YEAR}-{MONTH_AND_DAY}|{LEAP_YEAR}-02-29)"
HOUR_AND_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{HOUR_AND_MINUTE}:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{HOUR_AND_MINUTE})"

# RFC 3339, appendix A: a unit may be followed by the next smaller one only.
SECONDS = "[0-9]+S"
MINUTES = f"[0-9]+M(?:{SECONDS})?"
HOURS = f"[0-9]+H(?:{MINUTES})?"
DAYS = "[0-9]+D"
MONTHS = f"[0-9]+M(?:{DAYS})?"
YEARS = f"[0-9]+Y(?:{MONTHS})?"
CLOCK = f"T(?:{HOURS}|{MINUTES}|{SECONDS})"
DURATION = f"P(?:(?:{DAYS}|{MONTHS}|{YEARS})(?:{CLOCK})?|{CLOCK}|[0-9]+W)"

LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOSTNAME = rf"{LABEL}(?:\.{LABEL})*"
MAX_HOSTNAME_CHARS = 253

OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{OCTET}(?:\.{OCTET}){{3}}"
GROUP = "[0-9A-Fa-f]{1,4}"
LAST_GROUPS = f"(?:{GROUP}:{GROUP}|{IPV4})"


FULL_IPV6 = f"(?:{GROUP}:){{6}}{LAST_GROUPS}"


def _ipv6() -> str:
    """RFC 3986: one `::` stands for the groups that are missing, at least one."""
    forms = [FULL_IPV6]
    for num_after in range(5, -1, -1):
        before = f"(?:{GROUP}(?::{GROUP}){{0,{4 - num_after}}})?" if num_after < 5 else ""
        forms.append(f"{before}::(?:{GROUP}:){{{num_after}}}{LAST_GROUPS}")
    forms.append(f"(?:{GROUP}(?::{GROUP}){{0,5}})?::{GROUP}")
    forms.append(f"(?:{GROUP}(?::{GROUP}){{0,6}})?::")
    return f"(?:{'|'.join(forms)})"


IPV6 = _ipv6()

# RFC 5321: dot-string or quoted-string, then a domain or an address literal.
ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
ADDRESS = rf"\[(?:{IPV4}|[Ii][Pp][Vv]6:{IPV6})\]"
QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
UUID = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

UNRESERVED = r"A-Za-z0-9._~\-"
DELIMITERS = "!$&'()*+,;="
ENCODED = "%[0-9A-Fa-f]{2}"
# RFC 3987: ucschar, and iprivate, which may stand in a query only.
BEYOND_ASCII = r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}"
BEYOND_BMP = "".join(rf"\u{{{plane:x}0000}}-\u{{{plane:x}fffd}}" for plane in range(1, 17))
PRIVATE = r"\u{e000}-\u{f8ff}"

STEP = "/(?:[^/~]|~[01])*"
POINTER = f"(?:{STEP})*"
RELATIVE_POINTER = f"(?:0|[1-9][0-9]*)(?:#|{POINTER})"

VARIABLE = rf"[A-Za-z0-9_](?:\.?(?:[A-Za-z0-9_]|{ENCODED}))*"
VARIABLES = rf"{VARIABLE}(?::[1-9][0-9]{{0,2}}|\*)?"
TEMPLATE_LITERAL = rf"[!#$&-;=?-\[\]_a-z~{BEYOND_ASCII}{PRIVATE}{BEYOND_BMP}]|{ENCODED}"
URI_TEMPLATE = rf"(?:{TEMPLATE_LITERAL}|\{{[+#./;?&]?{VARIABLES}(?:,{VARIABLES})*\}})*"


def _resource(*, is_iri: bool, is_relative: bool) -> str:
    """The URI of RFC 3986, or with characters beyond ASCII the IRI of RFC 3987."""
    beyond, private = (BEYOND_ASCII, PRIVATE) if is_iri else ("", "")
    address = FULL_IPV6 if is_iri else IPV6
    plain = UNRESERVED + DELIMITERS + beyond
    segment = f"(?:[{plain}:@]|{ENCODED})"
    literal = rf"\[(?:{address}|v[0-9A-Fa-f]+\.[{UNRESERVED}{DELIMITERS}:]+)\]"
    authority = (
        rf"(?:(?:[{plain}:]|{ENCODED})*@)?(?:{literal}|(?:[{plain}]|{ENCODED})*)(?::[0-9]*)?"
    )
    first = f"(?:[{plain}@]|{ENCODED})" if is_relative else segment
    path = f"//{authority}(?:/{segment}*)*|/(?:{segment}+(?:/{segment}*)*)?"
    path = f"(?:{path}|{first}+(?:/{segment}*)*)?"
    tail = rf"(?:\?(?:[{plain}:@/?{private}]|{ENCODED})*)?(?:#(?:[{plain}:@/?]|{ENCODED})*)?"
    return path + tail if is_relative else f"[A-Za-z][A-Za-z0-9+.-]*:{path}{tail}"


def _reference(*, is_iri: bool) -> str:
    absolute = _resource(is_iri=is_iri, is_relative=False)
    return f"{absolute}|{_resource(is_iri=is_iri, is_relative=True)}"


SOURCES = {
    "date": DATE,
    "date-time": f"{DATE}[Tt]{TIME}",
    "duration": DURATION,
    "email": rf"(?:{ATOM}(?:\.{ATOM})*|{QUOTED})@(?:{HOSTNAME}|{ADDRESS})",
    "hostname": HOSTNAME,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "iri": _resource(is_iri=True, is_relative=False),
    "iri-reference": _reference(is_iri=True),
    "json-pointer": POINTER,
    "relative-json-pointer": RELATIVE_POINTER,
    "time": TIME,
    "uri": _resource(is_iri=False, is_relative=False),
    "uri-reference": _reference(is_iri=False),
    "uri-template": URI_TEMPLATE,
    "uuid": UUID,
}
ASSERTED_FORMATS = tuple(sorted(SOURCES))


def format_regex(name: str) -> Regex | None:
    """The language of an asserted format, made when first asked for; None for other names."""
    return _language(name) if name in SOURCES else None


@cache
def _language(name: str) -> Regex:
    language = parse_pattern(f"^(?:{SOURCES[name]})$", reading="narrow")
    if name == "hostname":
        return both(language, length_between(1, MAX_HOSTNAME_CHARS))
    return language
