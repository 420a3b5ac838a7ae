// An adapter of a model in use, and how strongly. Every text has a list of them, ascending, each
// once and none at scale 0: so equal texts with equal lists are computed equally.
#ifndef WEFT_BASE_ADAPTER_USE_H_
#define WEFT_BASE_ADAPTER_USE_H_

namespace weft {

struct AdapterUse {
  int adapter = 0;  // index into the model's adapters
  float scale = 1;
  bool operator==(const AdapterUse&) const = default;
};

}  // namespace weft

#endif  // WEFT_BASE_ADAPTER_USE_H_
