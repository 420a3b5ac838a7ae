#include "constraint/regex/formats.h"

#include <map>

#include "base/strings.h"

namespace weft::constraint {
namespace {

// The leap second at the end of a UTC day, in the local time of every whole-hour and half-hour
// offset.
std::string LeapSeconds() {
  const auto digits = [](int n) { return StrCat(n / 10, n % 10); };
  std::string all;
  for (int hour = 0; hour < 24; ++hour) {
    const std::string same = digits(hour), ahead = digits((hour + 1) % 24);
    const std::string behind = digits(23 - hour);
    StrAppend(&all, all.empty() ? "" : "|", same, ":(59:60(\\.\\d+)?(\\+", ahead, "|-", behind,
              "):00|29:60(\\.\\d+)?(\\+", same, "|-", behind, "):30)");
  }
  return all;
}

// The non-ASCII characters of internationalized identifiers (RFC 3987), and below, those for
// private use.
std::string Ucschar() {
  std::string all = "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}";
  for (const char plane : std::string_view("123456789ABCD")) {
    StrAppend(&all, "\\u{", plane, "0000}-\\u{", plane, "FFFD}");
  }
  return all + "\\u{E1000}-\\u{EFFFD}";
}
constexpr char kPrivate[] = "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

constexpr char kLabel[] = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
// A label that does not start with xn--. After xn-- comes an encoding of other characters, which no
// pattern can check.
constexpr char kPlainLabel[] =
    "([0-9A-WYZa-wyz]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?|[Xx]([0-9A-MO-Za-mo-z]([A-Za-z0-9-]{0,60}"
    "[A-Za-z0-9])?|-[A-Za-z0-9-]{0,60}[A-Za-z0-9]|[Nn]([A-Za-z0-9]([A-Za-z0-9-]{0,59}"
    "[A-Za-z0-9])?|-[A-Za-z0-9]([A-Za-z0-9-]{0,58}[A-Za-z0-9])?)?)?)";

std::string Hostname(std::string_view label) { return StrCat(label, "(\\.", label, ")*"); }
std::string WholeHostname(std::string_view label) {
  return StrCat("^(?=.{1,253}$)", Hostname(label), "$");
}

std::string Date() {
  return "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-"
         "9]|"
         "1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-"
         "29)";
}

std::string Time() {
  const std::string offset = "([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  return "((([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?" + offset + ")|23:59:60(\\.\\d+)?[Zz]|" +
         LeapSeconds() + ")";
}

constexpr char kDuration[] =
    "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|"
    "\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))";

std::string Ipv4() {
  const std::string octet = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return octet + "(\\." + octet + "){3}";
}

// With at most one ::, which stands for one group or more.
std::string Ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string low = "(" + h + ":" + h + "|" + Ipv4() + ")";
  std::string all = "((" + h + ":){6}" + low + "|::(" + h + ":){5}" + low;
  const auto before = [&](int most) {
    return most == 0 ? StrCat("|(", h, ")?::") : StrCat("|((", h, ":){0,", most, "}", h, ")?::");
  };
  for (int most = 0; most < 3; ++most) {
    StrAppend(&all, before(most), "(", h, ":){", 4 - most, "}", low);
  }
  StrAppend(&all, before(3), h, ":", low, before(4), low, before(5), h, before(6));
  return all + ")";
}

std::string Email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return "(" + atom + "(\\." + atom + ")*|\"([ !#-\\[\\]-~]|\\\\[ -~])*\")@(" + Hostname(kLabel) +
         "|\\[" + Ipv4() + "\\]|\\[IPv6:" + Ipv6() + "\\])";
}

// RFC 3986; RFC 3987 if `more` has the additional characters, and `query` those for the query.
std::string Uri(const std::string& more, const std::string& query, bool reference) {
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=" + more + "-]";
  const std::string pchar = "(" + escaped + "|[A-Za-z0-9._~!$&'()*+,;=:@" + more + "-])";
  const std::string authority = "((" + escaped + "|[A-Za-z0-9._~!$&'()*+,;=:" + more +
                                "-])*@)?(\\[(" + Ipv6() +
                                "|[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(" + escaped +
                                "|" + plain + ")*)(:\\d*)?";
  const std::string rest = "(\\?(" + pchar + "|[/?" + query + "])*)?(#(" + pchar + "|[/?])*)?";
  const std::string rooted =
      "(//" + authority + "(/" + pchar + "*)*|/(" + pchar + "+(/" + pchar + "*)*)?|";
  const std::string absolute =
      "[A-Za-z][A-Za-z0-9+.-]*:" + rooted + pchar + "+(/" + pchar + "*)*|)" + rest;
  if (!reference) return absolute;
  const std::string no_colon = "(" + escaped + "|[A-Za-z0-9._~!$&'()*+,;=@" + more + "-])";
  return "(" + absolute + "|" + rooted + no_colon + "+(/" + pchar + "*)*|)" + rest + ")";
}

// RFC 6570.
std::string UriTemplate() {
  const std::string variable =
      "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(:[1-9]\\d{0,3}|\\*)?";
  return "([!#$&'-;=?-\\[\\]_a-z~" + Ucschar() + kPrivate + "]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" +
         variable + "(," + variable + ")*\\})*";
}

std::map<std::string, std::string, std::less<>> MakeFormats() {
  const std::string pointer = "(/([^/~]|~[01])*)*";
  std::map<std::string, std::string, std::less<>> formats = {
      {"date-time", Date() + "[Tt]" + Time()},
      {"date", Date()},
      {"time", Time()},
      {"duration", kDuration},
      {"ipv4", Ipv4()},
      {"ipv6", Ipv6()},
      {"email", Email()},
      {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
      {"uri", Uri("", "", false)},
      {"uri-reference", Uri("", "", true)},
      {"iri", Uri(Ucschar(), kPrivate, false)},
      {"iri-reference", Uri(Ucschar(), kPrivate, true)},
      {"uri-template", UriTemplate()},
      {"json-pointer", pointer},
      {"relative-json-pointer", "(0|[1-9]\\d*)(#|" + pointer + ")"},
  };
  for (auto& [name, pattern] : formats) pattern.insert(0, "^(").append(")$");
  formats["hostname"] = WholeHostname(kPlainLabel);
  return formats;
}

}  // namespace

const std::string& FormatPattern(std::string_view name, bool surely) {
  static const auto* const hostname = new std::string(WholeHostname(kLabel));
  if (name == "hostname" && !surely) return *hostname;
  static const auto* const formats =
      new std::map<std::string, std::string, std::less<>>(MakeFormats());
  static const std::string none;
  const auto it = formats->find(name);
  return it == formats->end() ? none : it->second;
}

bool IsUnenforceableFormat(std::string_view name) {
  return name == "regex" || name == "idn-hostname" || name == "idn-email";
}

}  // namespace weft::constraint
