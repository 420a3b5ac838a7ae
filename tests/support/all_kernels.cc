#include "tests/support/all_kernels.h"

#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/best.h"
#include "compute/kernels_gpu/experts.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/recurrent.h"

namespace weft::testing {

using namespace device;  // NOLINT(google-build-using-namespace): a hundred names of it

std::vector<const Kernel*> AllKernels() {
  std::vector<const Kernel*> kernels = {
      &CopyRows,        &AddRows,         &MultiplyRows,      &ScaleRows,       &ActivateRows,
      &GateRows,        &RotateRows,      &NormRows,          &SetLengths,      &QuantizeRows,
      &RouteRows,       &SortPairs,       &MixRows,           &ConvolveRows,    &KeepInputs,
      &ComputeGates,    &AdvanceDeltaNet, &AdvanceStateSpace, &FinishHeadsF32,  &FinishHeadsF16,
      &FinishHeadsBF16, &FinishHeadsQ8_0, &MergeParts,        &ChangeRows,      &FindBest,
      &MergeBest,       &WeighRows,       &AdvanceShortRows,  &AdvanceLongRows, &ActivateBytes,
      &CountPairs};
#define WEFT_OF_FORM_(name, ...)                                                                  \
  for (const Kernel* kernel :                                                                     \
       {static_cast<const Kernel*>(&MultiplyOne##name),                                           \
        static_cast<const Kernel*>(&Multiply##name), static_cast<const Kernel*>(&Embed##name)}) { \
    kernels.push_back(kernel);                                                                    \
  }
#define WEFT_OF_TILES_(name, ...)          \
  kernels.push_back(&MultiplyFew##name);   \
  kernels.push_back(&MultiplyTiles##name); \
  kernels.push_back(&MultiplyMany##name);
  WEFT_QUANT_FORMS(WEFT_OF_FORM_)
  WEFT_QUANT_FORMS(WEFT_OF_TILES_)
  WEFT_FLOAT_FORMS(WEFT_OF_FORM_)
#define WEFT_OF_KV_(type, vectors)                 \
  kernels.push_back(&AttendFew##type##_##vectors); \
  kernels.push_back(&AttendMany##type##_##vectors);
  WEFT_ALL_KV_KERNELS(WEFT_OF_KV_)
#define WEFT_OF_SOME_(type, vectors) kernels.push_back(&AttendSome##type##_##vectors);
  WEFT_SOME_KV_KERNELS(WEFT_OF_SOME_)
  return kernels;
}

}  // namespace weft::testing
