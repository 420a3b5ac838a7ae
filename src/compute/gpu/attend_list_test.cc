// Attention by item lists gives the same bits as a plain loop over positions, for all shapes and
// however the list is cut.
#include "compute/gpu/attend_list.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/strings.h"
#include "compute/device/dialect.h"
#include "compute/device/emulator.h"
#include "compute/gpu/builder.h"
#include "compute/kernels_gpu/kv_device.h"
#include "compute/kernels_gpu/math.h"
#include "gtest/gtest.h"

namespace weft::gpu {
namespace {

using device::AttendArgs;
using device::KvPlane;
using device::KvType;

// One step's attention: the KV cache, the queries and the expected output.
struct Problem {
  KvType type = KvType::kF16;
  int page_tokens = 32, n_kv_heads = 2, heads_per_kv_head = 2, k_dim = 64, v_dim = 64;
  int window = 0, reach = -1;
  bool both_ways = false, latent = false, sinks = false;
  float softcap = 0;
  // Rows of each sequence and the positions before them; sequences of one family begin with the
  // same pages.
  struct Sequence {
    int n_rows, position, family, shared_pages;
  };
  std::vector<Sequence> sequences;
};

class AttentionOf {
 public:
  AttentionOf(const Problem& problem, uint64_t seed) : p_(problem), random_(seed) {
    LayOut();
    for (const Problem::Sequence& sequence : p_.sequences) Add(sequence);
    first_rows_.push_back(static_cast<int32_t>(positions_.size()));
    FillQueries();
    BuildSpec();
  }

  int n_rows() const { return static_cast<int>(positions_.size()); }
  int n_heads() const { return p_.n_kv_heads * p_.heads_per_kv_head; }

  // By items, with room for `max_parts` parts; 0: the room a step has.
  std::vector<float> ByItems(int64_t max_parts, bool shuffled, device::emulator::Order order) {
    AttendList list(spec_, p_.page_tokens, n_rows());
    if (max_parts > 0) list.set_most_parts(max_parts);
    std::vector<int32_t> rows(positions_.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<device::RowParts> parts(positions_.size());
    const Step step = {.sequences = steps_};
    list.Fill(step, p_.both_ways ? 1 : 0, table_begins_, &rows, parts);
    std::vector<device::AttendItem> items;
    device::ItemList lists[2];
    for (int i = 0; i < 2; ++i) {
      auto of_list = list.items(i);
      if (shuffled) std::ranges::shuffle(of_list, random_);
      lists[i] = {static_cast<int32_t>(items.size()), static_cast<int32_t>(of_list.size())};
      items.insert(items.end(), of_list.begin(), of_list.end());
    }
    EXPECT_LE(std::ssize(items), list.max_items());
    AttendArgs args = ArgsOf();
    args.step.items = items.data();
    args.step.item_lists = lists;
    args.step.item_rows = rows.data();
    args.step.row_parts = parts.data();
    const size_t n_floats = static_cast<size_t>(list.max_parts() * n_heads()) *
                            static_cast<size_t>(device::PartFloats(p_.v_dim));
    // Aligned to 16 bytes, as device memory is.
    std::vector<float> partials(n_floats + 4, device::FloatOf(0x7FC0DEADu));
    args.partials =
        reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(partials.data()) + 15) / 16 * 16);
    std::vector<float> out(positions_.size() * static_cast<size_t>(n_heads() * p_.v_dim));
    args.out = {out.data(), n_heads() * p_.v_dim};
    for (args.list = 0; args.list < 2; ++args.list) {
      if (lists[args.list].n == 0) continue;
      // With room for many items, another kernel takes the items of single rows.
      const int64_t room = shuffled && args.list == 0 ? 1024 : lists[args.list].n;
      const AttendLaunch launch = AttendLaunchOf(p_.type, args, room);
      const Status status = device::emulator::Run(*launch.kernel, launch.shape, &args, order);
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(
        device::emulator::Run(device::MergeParts, MergeShapeOf(args, n_), &args, order).ok());
    if (p_.v_dim % device::kBlockInputs == 0) ExpectSameAsBytes(args, out);
    return out;
  }
  // Merging straight into bytes equals merging into floats and then quantizing.
  void ExpectSameAsBytes(AttendArgs args, std::vector<float>& floats) {
    const int n_blocks = static_cast<int>(n_heads() * p_.v_dim / device::kBlockInputs);
    std::vector<int8_t> q[2];
    std::vector<uint32_t> meta[2];
    device::Int8View views[2];
    for (int i = 0; i < 2; ++i) {
      q[i].assign(floats.size(), 99);
      meta[i].assign(static_cast<size_t>(device::MetaWords(n_blocks)) * positions_.size(), 99);
      views[i] = {q[i].data(), meta[i].data()};
    }
    args.out = {};
    args.bytes = views[0];
    const RowSet rows = {&n_, n_};
    const device::QuantizeArgs quantize =
        QuantizeArgsOf({floats.data(), n_heads() * p_.v_dim}, n_heads() * p_.v_dim, views[1], rows);
    EXPECT_TRUE(device::emulator::Run(device::MergeParts, MergeShapeOf(args, n_), &args).ok());
    EXPECT_TRUE(device::emulator::Run(device::QuantizeRows,
                                      QuantizeShapeOf(n_heads() * p_.v_dim, rows, 1), &quantize)
                    .ok());
    EXPECT_EQ(q[0], q[1]);
    EXPECT_EQ(meta[0], meta[1]);
  }

  // Position by position.
  std::vector<float> InOrder() const {
    std::vector<float> out;
    for (int row = 0; row < n_rows(); ++row) {
      for (int head = 0; head < n_heads(); ++head) Attend(row, head, &out);
    }
    return out;
  }

 private:
  struct Sums {
    float max = device::FloatOf(0xFF800000u), weight = 0;
    std::vector<float> values;
  };

  void LayOut() {
    const int64_t n = p_.both_ways ? 1 : p_.page_tokens, e = p_.type == KvType::kF32    ? 4
                                                             : p_.type == KvType::kQ8_0 ? 1
                                                                                        : 2;
    const auto plane = [&](int64_t dims, bool by_dim) {
      KvPlane made;
      const int64_t groups = (dims + 31) / 32;
      made.offset = page_bytes_;
      made.head = dims * n;
      made.token = by_dim ? 1 : dims;
      made.dim = by_dim ? n : 1;
      page_bytes_ += (p_.n_kv_heads * made.head * e + 255) / 256 * 256;
      made.scale_offset = page_bytes_;
      made.scale_head = groups * n;
      made.scale_token = by_dim ? 1 : groups;
      made.scale_group = by_dim ? n : 1;
      page_bytes_ += (p_.n_kv_heads * made.scale_head * 2 + 255) / 256 * 256;
      return made;
    };
    kv_.keys = plane(p_.k_dim, !p_.both_ways);
    kv_.values = p_.latent ? kv_.keys : plane(p_.v_dim, false);
    kv_.k_dim = p_.k_dim;
    kv_.v_dim = p_.v_dim;
    kv_.group = p_.both_ways ? 1 : 0;
    while (1 << kv_.page_shift < n) ++kv_.page_shift;
  }

  void Add(const Problem::Sequence& sequence) {
    const auto number = static_cast<int32_t>(steps_.size());
    first_rows_.push_back(static_cast<int32_t>(positions_.size()));
    tokens_.emplace_back(static_cast<size_t>(sequence.n_rows), 1);
    const int n_tokens = sequence.position + sequence.n_rows, page = 1 << kv_.page_shift;
    std::vector<PageId> table;
    for (int i = 0; i * page < n_tokens; ++i) {
      const bool shared = i < sequence.shared_pages;
      table.push_back(shared ? SharedPage(sequence.family, i) : NewPage());
      const bool gone = p_.window > 0 && (i + 1) * page <= sequence.position - p_.window + 1;
      for (int t = 0; t < page && i * page + t < n_tokens && !gone; ++t) FillToken(table.back(), t);
      if (gone) table.back() = -1;
    }
    table_begins_.push_back(static_cast<int32_t>(pages_.size()));
    pages_.insert(pages_.end(), table.begin(), table.end());
    tables_.push_back(std::move(table));
    for (int i = 0; i < sequence.n_rows; ++i) {
      positions_.push_back(sequence.position + i);
      row_sequences_.push_back(number);
    }
    StepSequence step;
    step.position = sequence.position;
    steps_.push_back(step);
  }
  PageId SharedPage(int family, int i) {
    const auto found = shared_.find({family, i});
    return found != shared_.end() ? found->second : shared_[{family, i}] = NewPage();
  }
  PageId NewPage() {
    // Garbage that no kernel may use: NaNs, also as scales.
    pool_.resize(pool_.size() + static_cast<size_t>(page_bytes_), std::byte{0xFF});
    return static_cast<PageId>(std::ssize(pool_) / page_bytes_ - 1);
  }
  void FillToken(PageId page, int token) {
    if (!filled_.insert({page, token}).second) return;
    FillPlane(page, kv_.keys, token, p_.k_dim);
    if (!p_.latent) FillPlane(page, kv_.values, token, p_.v_dim);
  }
  void FillPlane(PageId page, const KvPlane& plane, int token, int dims) {
    for (int head = 0; head < p_.n_kv_heads; ++head) {
      for (int dim = 0; dim < dims; ++dim) Fill(page, plane, head, token, dim);
    }
  }
  void Fill(PageId page, const KvPlane& plane, int head, int token, int dim) {
    std::byte* const base = pool_.data() + page * page_bytes_;
    const int64_t at = head * plane.head + token * plane.token + dim * plane.dim;
    const float x = std::normal_distribution<float>(0, 1)(random_);
    switch (p_.type) {
      case KvType::kF32:
        reinterpret_cast<float*>(base + plane.offset)[at] = x;
        break;
      case KvType::kF16:
        reinterpret_cast<uint16_t*>(base + plane.offset)[at] = F32ToF16(x);
        break;
      case KvType::kBF16:
        reinterpret_cast<uint16_t*>(base + plane.offset)[at] = device::FloatToBfloat(x);
        break;
      case KvType::kQ8_0:
        reinterpret_cast<int8_t*>(base + plane.offset)[at] =
            static_cast<int8_t>(std::clamp(static_cast<int>(x * 40), -127, 127));
        reinterpret_cast<uint16_t*>(
            base + plane.scale_offset)[head * plane.scale_head + token * plane.scale_token +
                                       dim / 32 * plane.scale_group] =
            F32ToF16(0.01f + 0.001f * static_cast<float>((dim / 32 + token) % 7));
        break;
    }
  }
  float Get(PageId page, const KvPlane& plane, int head, int token, int dim) const {
    const std::byte* const base = pool_.data() + page * page_bytes_;
    const int64_t at = head * plane.head + token * plane.token + dim * plane.dim;
    switch (p_.type) {
      case KvType::kF32:
        return reinterpret_cast<const float*>(base + plane.offset)[at];
      case KvType::kF16:
        return F16ToF32(reinterpret_cast<const uint16_t*>(base + plane.offset)[at]);
      case KvType::kBF16:
        return device::BfloatToFloat(reinterpret_cast<const uint16_t*>(base + plane.offset)[at]);
      default:
        return static_cast<float>(reinterpret_cast<const int8_t*>(base + plane.offset)[at]) *
               F16ToF32(reinterpret_cast<const uint16_t*>(
                   base + plane.scale_offset)[head * plane.scale_head + token * plane.scale_token +
                                              dim / 32 * plane.scale_group]);
    }
  }

  void FillQueries() {
    queries_.resize(positions_.size() * static_cast<size_t>(n_heads() * p_.k_dim));
    std::normal_distribution<float> normal(0, 1);
    for (float& x : queries_) x = normal(random_);
    for (int i = 0; i < n_heads(); ++i) sinks_.push_back(normal(random_));
    for (int i = 0; i < n_heads(); ++i) slopes_.push_back(0.01f * static_cast<float>(i + 1));
    for (size_t s = 0; s < steps_.size(); ++s) {
      steps_[s].tokens = tokens_[s];
      steps_[s].page_tables = {tables_[s]};
    }
    slab_ = pool_.data();
    n_ = n_rows();
  }
  void BuildSpec() {
    spec_.kv_groups.push_back({.window = p_.window, .kv_layers = {0}});
    weft::Attention op;
    op.n_heads = n_heads();
    op.v_dim = p_.v_dim;
    spec_.layers.emplace_back().blocks.emplace_back().paths.emplace_back().op = op;
  }
  AttendArgs ArgsOf() {
    AttendArgs args;
    args.step.n_rows = &n_;
    args.step.positions = positions_.data();
    args.step.sequences = row_sequences_.data();
    args.step.first_rows = first_rows_.data();
    args.step.pages = pages_.data();
    args.step.max_rows = p_.both_ways ? 0 : n_rows();
    args.kv = kv_;
    args.kv.pool = {&slab_, 30, page_bytes_};
    // There is only one group.
    args.kv.group = 0;
    args.q = {queries_.data(), n_heads() * p_.k_dim};
    args.q_head = p_.k_dim;
    args.n_heads = n_heads();
    args.heads_per_kv_head = p_.heads_per_kv_head;
    args.window = p_.window;
    args.both_ways = p_.both_ways ? 1 : 0;
    args.reach = p_.reach;
    args.scale = 0.125f;
    args.softcap = p_.softcap;
    args.sinks = p_.sinks ? sinks_.data() : nullptr;
    args.slopes = p_.both_ways ? slopes_.data() : nullptr;
    return args;
  }

  static void Join(const Sums& part, Sums* sums) {
    const float max = device::Max(sums->max, part.max);
    const float mine = device::Exp(sums->max - max), its = device::Exp(part.max - max);
    sums->weight = device::Fma(part.weight, its, sums->weight * mine);
    for (size_t i = 0; i < part.values.size(); ++i) {
      sums->values[i] = device::Fma(part.values[i], its, sums->values[i] * mine);
    }
    sums->max = max;
  }
  static float Tree(std::vector<float> x) {
    for (size_t n = x.size() / 2; n > 0; n /= 2) {
      for (size_t i = 0; i < n; ++i) x[i] = x[i] + x[i + n];
    }
    return x[0];
  }
  float ScoreOf(int row, int head, int at) const {
    const int sequence = row_sequences_[static_cast<size_t>(row)];
    const int page = 1 << kv_.page_shift;
    const PageId id = tables_[static_cast<size_t>(sequence)][static_cast<size_t>(at / page)];
    const float* const query = queries_.data() + (row * n_heads() + head) * p_.k_dim;
    float score = 0;
    for (int d = 0; d < p_.k_dim; ++d) {
      score = device::Fma(Get(id, kv_.keys, head / p_.heads_per_kv_head, at % page, d), query[d],
                          score);
    }
    score = score * 0.125f;
    if (p_.softcap > 0) score = device::Softcap(p_.softcap, score);
    const int distance = std::abs(positions_[static_cast<size_t>(row)] - at);
    if (p_.both_ways) {
      score = device::Fma(-slopes_[static_cast<size_t>(head)], static_cast<float>(distance), score);
    }
    return score;
  }
  // Positions [begin, end) of a block of 32.
  void AddBlock(int row, int head, int block, int begin, int end, Sums* sums) const {
    const int page = 1 << kv_.page_shift;
    std::vector<float> scores(32), weights(32, 0.0f);
    float max = sums->max;
    for (int at = begin; at < end; ++at) {
      scores[static_cast<size_t>(at - block)] = ScoreOf(row, head, at);
      max = device::Max(max, scores[static_cast<size_t>(at - block)]);
    }
    const float factor = device::Exp(sums->max - max);
    for (int at = begin; at < end; ++at) {
      const auto i = static_cast<size_t>(at - block);
      weights[i] = device::Exp(scores[i] - max);
    }
    sums->weight = device::Fma(sums->weight, factor, Tree(weights));
    sums->max = max;
    for (float& value : sums->values) value = value * factor;
    const auto sequence = static_cast<size_t>(row_sequences_[static_cast<size_t>(row)]);
    for (int at = begin; at < end; ++at) {
      const PageId id = tables_[sequence][static_cast<size_t>(at / page)];
      for (int d = 0; d < p_.v_dim; ++d) {
        float& value = sums->values[static_cast<size_t>(d)];
        value = device::Fma(weights[static_cast<size_t>(at - block)],
                            Get(id, kv_.values, head / p_.heads_per_kv_head, at % page, d), value);
      }
    }
  }
  void Attend(int row, int head, std::vector<float>* out) const {
    const int position = positions_[static_cast<size_t>(row)];
    int first = p_.window > 0 ? std::max(0, position - p_.window + 1) : 0, last = position;
    if (p_.both_ways) {
      const auto sequence = static_cast<size_t>(row_sequences_[static_cast<size_t>(row)]);
      const int n = first_rows_[sequence + 1] - first_rows_[sequence];
      first = p_.reach < 0 ? 0 : std::max(0, position - p_.reach);
      last = p_.reach < 0 ? n - 1 : std::min(n - 1, position + p_.reach);
    }
    Sums sums;
    sums.values.assign(static_cast<size_t>(p_.v_dim), 0.0f);
    for (int split = first / 128; split <= last / 128; ++split) {
      Sums part;
      part.values.assign(static_cast<size_t>(p_.v_dim), 0.0f);
      for (int block = split * 128; block < split * 128 + 128; block += 32) {
        const int begin = std::max(block, first), end = std::min(block + 32, last + 1);
        if (begin < end) AddBlock(row, head, block, begin, end, &part);
      }
      Join(part, &sums);
    }
    float factor = 1;
    if (p_.sinks) {
      const float sink = sinks_[static_cast<size_t>(head)], max = device::Max(sums.max, sink);
      factor = device::Exp(sums.max - max);
      sums.weight = device::Fma(sums.weight, factor, device::Exp(sink - max));
    }
    for (const float value : sums.values) out->push_back(value * factor / sums.weight);
  }

  const Problem p_;
  std::mt19937_64 random_;
  device::KvView kv_;
  int64_t page_bytes_ = 0;
  std::vector<std::byte> pool_;
  std::byte* slab_ = nullptr;
  std::map<std::pair<int, int>, PageId> shared_;
  std::set<std::pair<PageId, int>> filled_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<StepSequence> steps_;
  std::vector<int32_t> positions_, row_sequences_, first_rows_, table_begins_, pages_;
  std::vector<float> queries_, sinks_, slopes_;
  int32_t n_ = 0;
  ModelSpec spec_;
};

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string Describe(const Problem& p) {
  std::string text = StrCat("type ", static_cast<int>(p.type), ", pages of ", p.page_tokens, ", ",
                            p.n_kv_heads, " x ", p.heads_per_kv_head, " heads of ", p.k_dim, ", ",
                            p.v_dim, ", window ", p.window, ", reach ", p.reach);
  for (const Problem::Sequence& sequence : p.sequences) {
    text += StrCat("; ", sequence.n_rows, " rows from ", sequence.position, " on");
  }
  return text;
}

// The same bits whatever the order of blocks and items, and however many splits form one item.
void ExpectSameBits(const Problem& problem, uint64_t seed) {
  using device::emulator::Order;
  AttentionOf attention(problem, seed);
  const std::vector<float> expected = attention.InOrder();
  EXPECT_TRUE(SameFloats(attention.ByItems(0, false, Order::kAscending), expected))
      << Describe(problem);
  const int64_t n_rows = attention.n_rows();
  for (const int64_t each : {1, 2, 3}) {
    EXPECT_TRUE(SameFloats(attention.ByItems(each * n_rows, true, Order::kDescending), expected))
        << Describe(problem) << ", " << each << " parts";
  }
}

class AttendListTest : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  template <typename T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }
};

TEST_P(AttendListTest, SessionsAndPromptsInPages) {
  Problem p;
  p.type = OneOf<KvType>({KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0});
  p.page_tokens = OneOf({16, 32, 64, 128});
  p.n_kv_heads = OneOf({1, 2});
  p.heads_per_kv_head = OneOf({1, 2, 3, 4, 6, 9});
  std::tie(p.k_dim, p.v_dim) = OneOf<std::pair<int, int>>(
      {{8, 8}, {20, 12}, {64, 64}, {80, 80}, {128, 128}, {96, 64}, {192, 128}, {256, 256}});
  p.window = OneOf({0, 0, 50, 200});
  p.softcap = OneOf({0.0f, 20.0f});
  p.sinks = OneOf({false, true});
  const int shared = 256 / p.page_tokens;
  for (int i = 0; i < 4; ++i) {
    const int n_rows = OneOf({1, 1, 1, 2, 5, 21});
    const bool shares = p.window == 0 && OneOf({false, true});
    const int position = OneOf({0, 3, 31, 127, 128, 260, 300, 390});
    p.sequences.push_back(
        {n_rows, std::max(position, shares ? 256 : 0), i % 2, shares ? shared : 0});
  }
  ExpectSameBits(p, random_());
}

TEST_P(AttendListTest, ValuesThatAreTheBeginningOfKeys) {
  Problem p;
  p.type = OneOf<KvType>({KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0});
  p.page_tokens = OneOf({16, 32, 64});
  p.n_kv_heads = 1;
  p.heads_per_kv_head = OneOf({4, 18});
  p.latent = true;
  std::tie(p.k_dim, p.v_dim) = OneOf<std::pair<int, int>>({{40, 32}, {96, 64}, {576, 512}});
  p.sequences = {{1, OneOf({5, 140}), 0, 0}, {OneOf({1, 3}), 130, 1, 0}};
  ExpectSameBits(p, random_());
}

TEST_P(AttendListTest, TextsThatAreSeenWhole) {
  Problem p;
  p.type = KvType::kF32;
  p.n_kv_heads = OneOf({1, 3});
  p.heads_per_kv_head = OneOf({1, 4});
  std::tie(p.k_dim, p.v_dim) = OneOf<std::pair<int, int>>({{20, 12}, {64, 64}, {32, 32}});
  p.both_ways = true;
  p.reach = OneOf({-1, 0, 20, 100});
  for (int i = 0; i < 3; ++i) p.sequences.push_back({OneOf({1, 9, 40, 150, 270}), 0, i, 0});
  ExpectSameBits(p, random_());
}

INSTANTIATE_TEST_SUITE_P(Seeds, AttendListTest, ::testing::Range(0, 8));

}  // namespace
}  // namespace weft::gpu
