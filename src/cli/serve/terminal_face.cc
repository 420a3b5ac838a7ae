#include "cli/serve/terminal_face.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "doors/http/guard.h"

namespace weft::cli {
namespace {

// This machine's first IPv4 address that others can reach; empty if there is none.
std::string OwnAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    const bool is_up = (each->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
    if (!is_up || each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    const auto* const address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr) found = text;
  }
  freeifaddrs(all);
  return found;
}

std::string PageLine(const TerminalFace::Address& address) {
  if (serve::IsLoopbackHost(address.host)) {
    return "this machine only; --host 0.0.0.0 --api-key-file FILE lets others in";
  }
  const std::string own = serve::IsAnyAddress(address.host) ? OwnAddress() : address.host;
  if (own.empty()) return "this machine has no address that others could reach";
  const bool is_ipv6 = own.find(':') != own.npos;
  return StrCat("http://", is_ipv6 ? "[" : "", own, is_ipv6 ? "]" : "", ":", address.port,
                " from a phone or another machine");
}

std::string KeysLine(const TerminalFace::Address& address, size_t n_keys) {
  if (n_keys == 1) return "1 key is accepted";
  if (n_keys > 1) return StrCat(n_keys, " keys are accepted");
  if (serve::IsLoopbackHost(address.host)) return "none needed";
  return "none: anyone who can reach this machine has access; see --api-key-file";
}

std::string ContextLine(serve::Host& host) {
  return StrCat(host.model().context_tokens(), " tokens for each conversation; ",
                host.engine().options().max_running, " can be answered at a time");
}

std::string MemoryLine(const EngineStats& stats, int64_t state_bytes) {
  return StrCat(HumanBytes(static_cast<uint64_t>(stats.weight_bytes)), " of weights, up to ",
                HumanBytes(static_cast<uint64_t>(state_bytes)), " of conversations");
}

}  // namespace

bool HasTerminalFace() { return isatty(STDERR_FILENO) == 1; }

TerminalFace::TerminalFace() { SetLogReader(LogReader::kPerson); }

TerminalFace::~TerminalFace() { ShowStatusLine(""); }

void TerminalFace::Introduce(serve::Host& host, const Address& address, size_t n_keys) {
  const EngineStats stats = host.engine().Stats();
  const EngineOptions& options = host.engine().options();
  const std::pair<const char*, std::string> lines[] = {
      {"model", StrCat(Printable(host.model_id(), 200), ", ", host.model().loading())},
      {"memory", MemoryLine(stats, options.memory_bytes)},
      {"context", ContextLine(host)},
      {"kept in", options.state_dir.empty() ? "memory alone; see --state-dir"
                                            : Printable(options.state_dir, 200)},
      {"keys", KeysLine(address, n_keys)},
      {"page", PageLine(address)}};
  constexpr size_t kColumn = 11;
  const size_t columns = WindowOf(STDERR_FILENO).value_or(WindowSize()).columns;
  for (const auto& [name, text] : lines) {
    std::fprintf(stderr, "  %-8s %s\n", name, Fill(text, columns, kColumn, kColumn).c_str());
  }
}

void TerminalFace::Update(const EngineStats& stats) {
  const int64_t now_us = NowMicros();
  const ServerFigures now = FiguresOf(stats);
  const ServerFigures before = before_.value_or(now);
  const double seconds = static_cast<double>(now_us - before_us_) / 1e6;
  // The last column stays free, since some terminals wrap a line that fills it.
  const size_t columns =
      std::max<size_t>(WindowOf(STDERR_FILENO).value_or(WindowSize()).columns, 2) - 1;
  ShowStatusLine(LiveLine(now, RatesBetween(before, now, before_ ? seconds : 0), columns));
  before_ = now;
  before_us_ = now_us;
}

}  // namespace weft::cli
