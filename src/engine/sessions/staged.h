// A value that moves through the stages of a life: an enum and a table of which stage may follow
// which. Any other step is a bug of ours and ends the program.
//
// An enum takes part by declaring beside itself
//
//   constexpr uint32_t After(E stage);           // AnyOf(the stages that may follow)
//   constexpr std::string_view NameOf(E stage);  // for people
#ifndef WEFT_ENGINE_SESSIONS_STAGED_H_
#define WEFT_ENGINE_SESSIONS_STAGED_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

namespace weft {

template <typename... E>
constexpr uint32_t AnyOf(E... stages) {
  return (0u | ... | (1u << static_cast<uint32_t>(stages)));
}

template <typename E>
class Staged {
 public:
  explicit Staged(E first) : stage_(first) {}
  // Only a transition changes it.
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  operator E() const { return stage_; }  // NOLINT(google-explicit-constructor): it is one
  E get() const { return stage_; }
  template <typename... Others>
  bool IsAnyOf(Others... stages) const {
    return (AnyOf(stages...) & AnyOf(stage_)) != 0;
  }

  // REQUIRES: `next` may follow.
  void Become(E next) {
    WEFT_CHECK(
        (After(stage_) & AnyOf(next)) != 0,
        (std::string(NameOf(stage_)) + " cannot become " + std::string(NameOf(next))).c_str());
    stage_ = next;
  }

 private:
  E stage_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_STAGED_H_
