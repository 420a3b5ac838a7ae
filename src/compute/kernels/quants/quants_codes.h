// Encodes blocks of the IQ1, IQ2 and IQ3 types: for every run of values, the entry of the codebook
// that stores it best. Internal to quants_encode.cc.
//
// "Best" is the smallest sum of w * (x - scale * y)^2, where y is an entry's value. For an entry c,
// that sum is a constant plus 2 * scale * (scale / 2 * squares[c] - products[c]), where the sums of
// w * y * y and of w * x * y do not depend on the scale. They are computed once for every entry, so
// each scale that is tried costs one pass over two arrays, and no entry is left out.
//
// Runs of one part (16 or 32 values) share a scale. Some of them depend on each other in another
// way too: they make a unit. In IQ2_XXS, IQ2_XS and IQ3_XXS, the signs of eight values multiply to
// a positive number. Where those of the values do not, one value gets the wrong sign: the one that
// costs least. In IQ1_S and IQ1_M, an eighth is added to all values of a unit, or subtracted. So
// every run has a second variant, and a unit has the combinations of variants that are allowed.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_CODES_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_CODES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

#include "compute/kernels/quants/codebooks.h"
#include "compute/kernels/quants/quant_types.h"
#include "compute/kernels/quants/quants_fit.h"

namespace weft::quants_internal {

enum class Variants {
  kNone,
  kFlipInside,  // a unit is one run, whose entries know the sign that costs least
  kFlipOne,     // a unit is two runs: if its signs are odd, one run has a flipped value
  kShift,       // an eighth more or less in all runs of a unit
};

// What an IQ type's blocks are made of.
struct CodeForm {
  const uint16_t* codes;
  int n_codes;
  int width;      // values of a run
  int part;       // values that share a scale
  int unit_runs;  // runs of a unit
  Variants variants;
  int top_scale;  // the largest stored scale, an odd number
  float unit;     // the stored scale 1 stands for d times this
};

template <DType kType>
constexpr CodeForm CodeFormOf() {
  switch (kType) {
    case DType::kIQ2_XXS:
      return {kIq2XxsCodes, 256, 8, 32, 1, Variants::kFlipInside, 31, 0.125f};
    case DType::kIQ2_XS:
      return {kIq2XsCodes, 512, 8, 16, 1, Variants::kFlipInside, 31, 0.125f};
    case DType::kIQ2_S:
      return {kIq2SCodes, 1024, 8, 16, 1, Variants::kNone, 31, 0.125f};
    case DType::kIQ3_XXS:
      return {kIq3XxsCodes, 256, 4, 32, 2, Variants::kFlipOne, 31, 0.25f};
    case DType::kIQ3_S:
      return {kIq3SCodes, 512, 4, 32, 1, Variants::kNone, 31, 1.0f};
    case DType::kIQ1_S:
      return {kIq1Codes, 2048, 8, 32, 4, Variants::kShift, 15, 1.0f};
    case DType::kIQ1_M:
      return {kIq1Codes, 2048, 8, 16, 1, Variants::kShift, 15, 1.0f};
    default:
      return {};
  }
}
template <DType kType>
inline constexpr bool kHasCodes = CodeFormOf<kType>().n_codes > 0;

// The magnitude of digit `i` of an entry (in the IQ1 types, its value).
template <DType kType>
inline float DigitValue(uint32_t code, int i) {
  constexpr int kBits = CodeFormOf<kType>().width == 8 ? 2 : 3;
  const uint32_t digit = code >> (kBits * i) & ((1u << kBits) - 1);
  if constexpr (CodeFormOf<kType>().variants == Variants::kShift) {
    return static_cast<float>(digit) - 1.0f;
  } else {
    constexpr LevelTable kTable = Quantized<kType>::kFormat.table;
    constexpr int kFirst = kBits == 2 ? 3 : 8;  // the smallest positive level
    return static_cast<float>(ValuesOf(kTable)[kFirst + digit]);
  }
}

// Finds the parts of one block. Holds a few hundred kilobytes: make one for a row.
template <DType kType>
class CodeFitter {
 public:
  static constexpr CodeForm kForm = CodeFormOf<kType>();

  CodeFitter() : lines_(new Line[kRuns * kVariants]), digits_(new Digits) {
    for (int c = 0; c < kForm.n_codes; ++c) {
      for (int i = 0; i < kForm.width; ++i) {
        digits_->of[i][c] = DigitValue<kType>(kForm.codes[c], i);
      }
    }
  }

  // `w` are weights above 0. `store` rounds the shared scale to a half and returns its value.
  template <typename StoreHalf>
  void Fit(const float* x, const float* w, StoreHalf store, BlockParts* parts) {
    x_ = x;
    w_ = w;
    float wanted[kParts], largest = 0;
    for (int part = 0; part < kParts; ++part) {
      for (int i = 0; i < kPartRuns; ++i) Prepare(part * kPartRuns + i);
      wanted[part] = WantedScale(part);
      largest = std::max(largest, wanted[part]);
    }
    unit_ = store(largest / (kForm.unit * kForm.top_scale), &parts->d) * kForm.unit;
    for (int part = 0; part < kParts; ++part) {
      const float index = 0.5f * (wanted[part] * Inverse(unit_) - 1.0f);
      scales_[part] = static_cast<int>(RoundToInt(Clamp(index, 0.0f, kMaxIndex))) * 2 + 1;
    }
    for (int pass = 0; pass < 2; ++pass) {
      if (pass > 0) unit_ = store(BestUnit() / kForm.unit, &parts->d) * kForm.unit;
      for (int part = 0; part < kParts; ++part) RefitScale(part);
    }
    if (unit_ == 0) unit_ = 1;  // zeros get the entries that are closest to it
    for (int unit = 0; unit < kUnits; ++unit) PutLevels(unit, parts);
    parts->dmin = parts->d;
    for (int part = 0; part < kParts; ++part) {
      parts->scale8[part] = static_cast<uint8_t>(scales_[part]);
    }
  }

 private:
  static constexpr int kRuns = 256 / kForm.width, kParts = 256 / kForm.part;
  static constexpr int kPartRuns = kForm.part / kForm.width;
  static constexpr int kUnits = kRuns / kForm.unit_runs, kPartUnits = kUnits / kParts;
  static constexpr bool kTwo =
      kForm.variants == Variants::kFlipOne || kForm.variants == Variants::kShift;
  static constexpr int kVariants = kTwo ? 2 : 1;
  static constexpr int kTopIndex = (kForm.top_scale - 1) / 2;
  static constexpr float kMaxIndex = kTopIndex;
  static constexpr float kShift = 0.125f;

  struct Line {
    float products[kForm.n_codes], squares[kForm.n_codes];
  };
  struct Digits {
    float of[kForm.width][kForm.n_codes];
  };
  // The least error of a run at a scale, and the first entry of the piece of the codebook where it
  // is. Errors are without the constant, divided by twice the scale.
  struct Found {
    float error;
    int piece;
  };
  // The best encoding of a unit at one scale: a bit per run for its variant, and its codes.
  struct Choice {
    uint32_t variants;
    float error;
    Found found[kForm.unit_runs];
  };

  Line& line(int run, int variant) const { return lines_[run * kVariants + variant]; }
  uint32_t SignsOf(int run) const {
    uint32_t signs = 0;
    for (int i = 0; i < kForm.width; ++i) {
      signs |= static_cast<uint32_t>(x_[run * kForm.width + i] < 0) << i;
    }
    return signs;
  }
  bool IsOdd(int unit) const {
    uint32_t bits = 0;
    for (int i = 0; i < kForm.unit_runs; ++i) bits ^= SignsOf(unit * kForm.unit_runs + i);
    return std::popcount(bits) % 2 == 1;
  }

  // Computes the lines of a run.
  void Prepare(int run) {
    const float* const x = x_ + run * kForm.width;
    const float* const w = w_ + run * kForm.width;
    float wx[kForm.width], sum_w = 0, sum_wx = 0;
    for (int i = 0; i < kForm.width; ++i) {
      wx[i] = w[i] * (kForm.variants == Variants::kShift ? x[i] : std::fabs(x[i]));
      sum_w += w[i];
      sum_wx += wx[i];
    }
    const bool flips = (kForm.variants == Variants::kFlipInside && IsOdd(run)) ||
                       (kForm.variants == Variants::kFlipOne && IsOdd(run / kForm.unit_runs));
    Line& first = line(run, 0);
    Line& second = line(run, kVariants - 1);
    ForVecs<kForm.n_codes>([&](int c) {
      Vec product = {}, square = {}, sum = {};
      Vec least = Vec{} + INFINITY;  // the product that costs least to lose
      for (int i = 0; i < kForm.width; ++i) {
        const Vec y = Load(digits_->of[i] + c), term = wx[i] * y;
        product += term;
        square += w[i] * y * y;
        if constexpr (kForm.variants == Variants::kShift) sum += w[i] * y;
        least = term < least ? term : least;
      }
      if constexpr (kForm.variants == Variants::kShift) {
        const Vec both = square + kShift * kShift * sum_w;
        quants_internal::Store(first.products + c, product - kShift * sum_wx);
        quants_internal::Store(first.squares + c, both - 2.0f * kShift * sum);
        quants_internal::Store(second.products + c, product + kShift * sum_wx);
        quants_internal::Store(second.squares + c, both + 2.0f * kShift * sum);
        return;
      }
      const Vec flipped = flips ? product - 2.0f * least : product;
      const bool inside = kForm.variants == Variants::kFlipInside;
      quants_internal::Store(first.products + c, inside ? flipped : product);
      quants_internal::Store(first.squares + c, square);
      if constexpr (kTwo) {
        quants_internal::Store(second.products + c, flipped);
        quants_internal::Store(second.squares + c, square);
      }
    });
  }

  static constexpr int kPiece = 64;

  static Vec Errors(const Line& line, int c, float half) {
    return half * Load(line.squares + c) - Load(line.products + c);
  }
  static Found Least(const Line& line, float scale) {
    const float half = 0.5f * scale;
    Found best = {INFINITY, 0};
    for (int piece = 0; piece < kForm.n_codes; piece += kPiece) {
      Vec a = Errors(line, piece, half), b = Errors(line, piece + kVecLanes, half);
      for (int c = piece + 2 * kVecLanes; c < piece + kPiece; c += 2 * kVecLanes) {
        const Vec even = Errors(line, c, half), odd = Errors(line, c + kVecLanes, half);
        a = even < a ? even : a;
        b = odd < b ? odd : b;
      }
      a = b < a ? b : a;
      const float least = std::min(std::min(a[0], a[1]), std::min(a[2], a[3]));
      if (least < best.error) best = {least, piece};
    }
    return best;
  }
  static int IndexOf(const Found& found, const Line& line, float scale) {
    const float half = 0.5f * scale;
    for (int c = found.piece; c < found.piece + kPiece; c += kVecLanes) {
      const Vec errors = Errors(line, c, half);
      for (int i = 0; i < kVecLanes; ++i) {
        if (errors[i] == found.error) return c + i;
      }
    }
    return 0;
  }

  Choice Best(int unit, float scale) const {
    const int first = unit * kForm.unit_runs;
    Found found[kForm.unit_runs][kVariants];
    const bool two =
        kForm.variants == Variants::kShift || (kForm.variants == Variants::kFlipOne && IsOdd(unit));
    for (int i = 0; i < kForm.unit_runs; ++i) {
      for (int v = 0; v < (two ? kVariants : 1); ++v)
        found[i][v] = Least(line(first + i, v), scale);
    }
    Choice best = {0, INFINITY, {}};
    const auto consider = [&](uint32_t variants) {
      float sum = 0;
      for (int i = 0; i < kForm.unit_runs; ++i) sum += found[i][variants >> i & 1].error;
      if (sum < best.error) best = {variants, sum, {}};
    };
    if constexpr (kForm.variants == Variants::kFlipOne) {
      if (!two) consider(0);
      for (int i = 0; two && i < kForm.unit_runs; ++i) consider(1u << i);
    } else {
      if constexpr (kTwo) consider((1u << kForm.unit_runs) - 1);
      consider(0);
    }
    for (int i = 0; i < kForm.unit_runs; ++i) best.found[i] = found[i][best.variants >> i & 1];
    return best;
  }

  float ErrorOf(int part, float scale) const {
    float sum = 0;
    for (int i = 0; i < kPartUnits; ++i) sum += Best(part * kPartUnits + i, scale).error;
    return sum * scale;
  }
  // Adds the products and squares of the entries that are best at the scale.
  void AddChosen(int part, float scale, float* products, float* squares) const {
    for (int u = part * kPartUnits; u < (part + 1) * kPartUnits; ++u) {
      const Choice choice = Best(u, scale);
      for (int i = 0; i < kForm.unit_runs; ++i) {
        const Line& chosen = line(u * kForm.unit_runs + i, choice.variants >> i & 1);
        const int c = IndexOf(choice.found[i], chosen, scale);
        *products += chosen.products[c];
        *squares += chosen.squares[c];
      }
    }
  }

  // The best scale of a part, whatever can be stored.
  float WantedScale(int part) const {
    const float* const x = x_ + part * kForm.part;
    float largest = 0, smallest = INFINITY;
    for (int i = 0; i < kForm.part; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
      smallest = std::min(smallest, std::fabs(x[i]));
    }
    if (largest == 0) return 0;
    float best = INFINITY, best_scale = 0;
    const auto try_scale = [&](float scale) {
      const float error = ErrorOf(part, scale);
      if (error >= best) return;
      best = error;
      best_scale = scale;
    };
    constexpr bool kTernary = kForm.variants == Variants::kShift;
    constexpr uint32_t kTopDigit = kForm.width == 8 ? 2 : 7;
    const float top = kTernary ? 1.1f : DigitValue<kType>(kTopDigit, 0);
    for (const float share : {0.45f, 0.58f, 0.72f, 0.87f, 1.02f}) try_scale(share * largest / top);
    // Every codebook has an entry of smallest magnitudes, but not one of large ones.
    if (!kTernary && smallest > 0.6f * largest) try_scale(largest / DigitValue<kType>(0, 0));
    for (int round = 0; round < 2; ++round) {
      float products = 0, squares = 0;
      AddChosen(part, best_scale, &products, &squares);
      if (squares > 0 && products > 0) best_scale = products / squares;
    }
    return best_scale;
  }

  // Chooses the best of a stored scale and its neighbours.
  void RefitScale(int part) {
    const int start = scales_[part];
    float best = ErrorOf(part, unit_ * static_cast<float>(start));
    for (const int scale : {start - 2, start + 2}) {
      if (scale < 1 || scale > kForm.top_scale) continue;
      const float error = ErrorOf(part, unit_ * static_cast<float>(scale));
      if (error >= best) continue;
      best = error;
      scales_[part] = scale;
    }
  }

  // The best factor for the stored scales.
  float BestUnit() const {
    float products = 0, squares = 0;
    for (int part = 0; part < kParts; ++part) {
      const auto scale = static_cast<float>(scales_[part]);
      float p = 0, s = 0;
      AddChosen(part, unit_ * scale, &p, &s);
      products += scale * p;
      squares += scale * scale * s;
    }
    return squares > 0 && products > 0 ? products / squares : unit_;
  }

  void PutLevels(int unit, BlockParts* parts) const {
    const int part = unit / kPartUnits;
    const float scale = unit_ * static_cast<float>(scales_[part]);
    const Choice choice = Best(unit, scale);
    for (int i = 0; i < kForm.unit_runs; ++i) {
      const int run = unit * kForm.unit_runs + i;
      const uint32_t variant = choice.variants >> i & 1;
      const uint32_t code =
          kForm.codes[IndexOf(choice.found[i], line(run, static_cast<int>(variant)), scale)];
      uint8_t* const levels = parts->levels + run * kForm.width;
      if constexpr (kType == DType::kIQ1_S) {
        for (int j = 0; j < 8; ++j) levels[j] = code >> (2 * j) & 3;
        parts->min8[part] = static_cast<uint8_t>(scales_[part] * (variant == 1 ? 7 : 9));
      } else if constexpr (kType == DType::kIQ1_M) {
        for (int j = 0; j < 8; ++j) {
          levels[j] = static_cast<uint8_t>(2 * (code >> (2 * j) & 3) + variant);
        }
      } else {
        const bool flips = kForm.variants == Variants::kFlipInside ? IsOdd(run) : variant == 1;
        const uint32_t signs = SignsOf(run) ^ (flips ? CheapestSign(run, code) : 0);
        if constexpr (kForm.width == 8) {
          Add8Of3(code, signs, levels);
        } else {
          Add4Of8(code, signs, levels);
        }
      }
    }
  }

  // The bit of the value whose wrong sign costs least.
  uint32_t CheapestSign(int run, uint32_t code) const {
    float least = INFINITY;
    int best = 0;
    for (int i = 0; i < kForm.width; ++i) {
      const int at = run * kForm.width + i;
      const float cost = w_[at] * std::fabs(x_[at]) * DigitValue<kType>(code, i);
      if (cost < least) {
        least = cost;
        best = i;
      }
    }
    return 1u << best;
  }

  const std::unique_ptr<Line[]> lines_;
  const std::unique_ptr<Digits> digits_;
  const float* x_ = nullptr;
  const float* w_ = nullptr;
  float unit_ = 0;  // the value of the stored scale 1
  int scales_[kParts] = {};
};

}  // namespace weft::quants_internal

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_CODES_H_
