#include "tests/support/access_counter.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/strings.h"
#include "tests/support/watched_accesses.h"

namespace weft::testing {

namespace {

constexpr int kLanes = device::kWarpLanes;
constexpr uintptr_t kSector = 32, kLine = 128;
constexpr int kBanks = 32;

constexpr double kMuch = 1.3;

double Ratio(int64_t n, int64_t ideal) {
  return ideal == 0 ? 1 : static_cast<double>(n) / static_cast<double>(ideal);
}

std::string Rounded(double x) { return StrCat(std::llround(100 * x) / 100.0); }

std::string Figures(const AccessCounter::Count& c) {
  return StrCat(c.requests, " requests, ", c.bytes, " bytes, ", c.sectors, " sectors, ", c.lines,
                " lines, sectors ", Rounded(c.SectorRatio()), ", shared memory ",
                Rounded(c.SharedRatio()), " times the ideal");
}

// The place as text: file and line, or an address for addr2line.
std::string TextOf(const AccessCounter::Place& place) {
  if (!place.file.empty()) return StrCat(place.file, ":", place.line);
  return CodeText(place.code);
}

}  // namespace

double AccessCounter::Count::SectorRatio() const { return Ratio(wide_sectors, wide_ideal); }
double AccessCounter::Count::SharedRatio() const { return Ratio(shared_cycles, shared_ideal); }
AccessCounter::Count& AccessCounter::Count::operator+=(const Count& other) {
  requests += other.requests;
  sectors += other.sectors;
  lines += other.lines;
  bytes += other.bytes;
  wide_sectors += other.wide_sectors;
  wide_ideal += other.wide_ideal;
  shared_cycles += other.shared_cycles;
  shared_ideal += other.shared_ideal;
  return *this;
}

void AccessCounter::Start() { device::emulator::observer = this; }
AccessCounter::~AccessCounter() { device::emulator::observer = nullptr; }

AccessCounter::Count AccessCounter::Of(std::string_view name) const {
  Count sum;
  for (const auto& [kernel, places] : counts_) {
    if (!kernel.starts_with(name)) continue;
    for (const auto& [place, count] : places) sum += count;
  }
  return sum;
}

std::string AccessCounter::Report() const {
  std::string text;
  for (const auto& [kernel, places] : counts_) {
    Count sum;
    for (const auto& [place, count] : places) sum += count;
    text += StrCat(kernel, ": ", Figures(sum), "\n");
    for (const auto& [place, count] : places) {
      if (count.SectorRatio() <= kMuch && count.SharedRatio() <= kMuch) continue;
      text += StrCat("    ", TextOf(place), ": ", Figures(count), "\n");
    }
  }
  return text;
}

void AccessCounter::OnGlobal(const void* p, size_t bytes, bool /*writes*/, uintptr_t code) {
  Note({reinterpret_cast<uintptr_t>(p), bytes}, false, {code, {}, 0});
}
void AccessCounter::OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) {
  Note({reinterpret_cast<uintptr_t>(from), bytes}, false, {0, site.file_name(), site.line()});
}
void AccessCounter::OnShared(int word, int n_words, const device::emulator::Site& site) {
  // A separate entry from the copy's access to global memory at the same place.
  Note({4 * static_cast<uintptr_t>(word), 4 * static_cast<size_t>(n_words)}, true,
       {site.column() + 1, site.file_name(), site.line()});
}

void AccessCounter::Note(const Piece& piece, bool is_shared, const Place& place) {
  Visits& visits = visits_[place];
  visits.is_shared = is_shared;
  const auto thread = static_cast<size_t>(device::emulator::place.thread), warp = thread / kLanes;
  if (visits.n_of_thread.size() <= thread) visits.n_of_thread.resize(thread + 1);
  if (visits.of_warp.size() <= warp) visits.of_warp.resize(warp + 1);
  std::vector<Request>& requests = visits.of_warp[warp];
  const auto n = static_cast<size_t>(visits.n_of_thread[thread]++);
  if (requests.size() <= n) requests.resize(n + 1);
  Request& request = requests[n];
  request.pieces[static_cast<size_t>(request.n++)] = piece;
}

void AccessCounter::OnBlockEnd(const device::Kernel& kernel) {
  std::map<Place, Count>& counts = counts_[kernel.name];
  for (auto& [place, visits] : visits_) {
    Count count;
    for (const std::vector<Request>& requests : visits.of_warp) {
      for (const Request& request : requests) Fold(request, visits.is_shared, &count);
    }
    counts[place] += count;
  }
  visits_.clear();
}

namespace {

// The numbers of different units of `size` bytes, and of different bytes, that the sorted pieces
// touch.
struct Touched {
  int64_t units = 0, bytes = 0;
};
template <typename Piece>
Touched TouchedBy(std::span<const Piece> pieces, uintptr_t size) {
  Touched touched;
  uintptr_t next_unit = 0, next_byte = 0;
  for (const Piece& piece : pieces) {
    const uintptr_t end = piece.at + piece.bytes;
    const uintptr_t first = std::max(next_unit, piece.at / size), last = (end - 1) / size + 1;
    if (last > first) {
      touched.units += static_cast<int64_t>(last - first);
      next_unit = last;
    }
    if (end > next_byte) {
      touched.bytes += static_cast<int64_t>(end - std::max(next_byte, piece.at));
      next_byte = end;
    }
  }
  return touched;
}

// Cycles of shared memory for a request. It serves as many lanes at a time as access 32 words
// together, and a bank delivers one word per cycle, to all lanes that want it.
template <typename Piece>
int64_t CyclesOf(std::span<const Piece> pieces) {
  const size_t at_once = kBanks * 4 / std::max<size_t>(pieces[0].bytes, 4);
  int64_t cycles = 0;
  for (size_t first = 0; first < pieces.size(); first += at_once) {
    std::array<std::vector<uintptr_t>, kBanks> words;
    for (const Piece& piece : pieces.subspan(first, std::min(at_once, pieces.size() - first))) {
      for (uintptr_t at = piece.at; at < piece.at + piece.bytes; at += 4) {
        std::vector<uintptr_t>& bank = words[at / 4 % kBanks];
        if (std::ranges::count(bank, at) == 0) bank.push_back(at);
      }
    }
    size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    cycles += static_cast<int64_t>(most);
  }
  return cycles;
}

}  // namespace

void AccessCounter::Fold(const Request& request, bool is_shared, Count* count) {
  std::vector<Piece> pieces(request.pieces.begin(), request.pieces.begin() + request.n);
  if (is_shared) {
    const auto n = static_cast<int64_t>(pieces.size() * pieces[0].bytes);
    count->shared_cycles += CyclesOf(std::span<const Piece>(pieces));
    count->shared_ideal += (n + 4 * kBanks - 1) / (4 * kBanks);
    return;
  }
  std::ranges::sort(pieces, {}, &Piece::at);
  const Touched sectors = TouchedBy(std::span<const Piece>(pieces), kSector);
  ++count->requests;
  count->sectors += sectors.units;
  count->bytes += sectors.bytes;
  count->lines += TouchedBy(std::span<const Piece>(pieces), kLine).units;
  if (sectors.units == 1) return;
  count->wide_sectors += sectors.units;
  count->wide_ideal += (sectors.bytes + static_cast<int64_t>(kSector) - 1) / kSector;
}

}  // namespace weft::testing
