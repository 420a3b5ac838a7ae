// A non-owning reference to any callable, for arguments that are called before the function
// returns.
#ifndef WEFT_BASE_FUNCTION_REF_H_
#define WEFT_BASE_FUNCTION_REF_H_

#include <type_traits>

namespace weft {

// Valid as long as the callable is.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable&& callable)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace weft

#endif  // WEFT_BASE_FUNCTION_REF_H_
