// An NVIDIA device: runtime.h on top of the driver API.
//
// Devices of one card share the card's primary context, which lives as long as one of them; memory,
// streams and kernels are separate. A hardware fault in a kernel (such as an invalid address)
// destroys the context, and with it everything that this process has on the card; every later call
// then fails.
//
// No call leaves its context current, so the rest of the program may use other contexts.
#ifndef WEFT_COMPUTE_DEVICE_CUDA_DEVICE_H_
#define WEFT_COMPUTE_DEVICE_CUDA_DEVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "compute/device/cuda_driver.h"
#include "compute/device/runtime.h"

namespace weft::device {

// Compiled kernels, as nvcc writes them: cubins or fat binaries.
using KernelImages = std::span<const std::byte* const>;

// A card's properties, available without opening a CudaDevice.
struct CudaCard {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  // Peak rates at the highest clocks: memory bandwidth, and 8-bit multiply-adds of the tensor
  // cores.
  double bytes_per_s = 0, int8_macs_per_s = 0;
};
int CountCudaCards(const cuda::Driver& driver);
StatusOr<CudaCard> CudaCardOf(const cuda::Driver& driver, int number);
// The card's memory at the moment, in bytes.
struct CudaMemoryInfo {
  int64_t free_bytes = 0, total_bytes = 0;
  // Bytes to leave free: the driver takes some for itself, and on a card with a desktop, windows
  // open and close.
  int64_t reserve_bytes = 0;
};
StatusOr<CudaMemoryInfo> CudaMemoryOf(const cuda::Driver& driver, int number);

class CudaDevice : public Device {
 public:
  struct Options {
    // Whether a graph is one launch. If false, its kernels are launched one by one, to measure the
    // gain.
    bool graphs = true;
    std::chrono::milliseconds patience = std::chrono::minutes(2);
  };

  // Opens the driver's device `number`, counted from 0. `driver` and the images outlive the device.
  static StatusOr<std::shared_ptr<CudaDevice>> Open(const cuda::Driver& driver, int number,
                                                    KernelImages images, const Options& options);
  ~CudaDevice() override;

  const std::string& name() const override { return name_; }
  int64_t held_bytes() const override { return held_bytes_; }
  StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override;
  StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) override;
  StatusOr<std::unique_ptr<Event>> NewEvent() override;
  std::unique_ptr<Graph> NewGraph() override;
  bool multiplies_tiles() const override { return true; }
  std::chrono::milliseconds patience() const override { return options_.patience; }

 protected:
  StatusOr<std::unique_ptr<Stream>> MakeStream(Priority priority) override;

 private:
  friend class CudaMemory;
  friend class CudaEvent;
  friend class CudaGraph;
  friend class CudaStream;
  class Current;  // makes the context current in a scope

  CudaDevice(const cuda::Driver& driver, int number, const Options& options)
      : driver_(driver), number_(number), options_(options) {}
  Status Start(KernelImages images);
  StatusOr<cuda::Function> FunctionOf(const Kernel& kernel);
  Status StatusOfLoad(cuda::Result result, const CudaCard& card) const;
  // The status for a driver call's result. `what` completes a sentence that begins with "cannot".
  Status ToStatus(cuda::Result result, std::string_view what) const;

  const cuda::Driver& driver_;
  const int number_;
  const Options options_;
  std::string name_;
  cuda::DeviceNumber device_ = 0;
  cuda::Context context_ = nullptr;
  std::vector<cuda::Module> modules_;
  std::atomic<int64_t> held_bytes_ = 0;
  Mutex mutex_;
  std::map<std::string_view, cuda::Function> functions_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_CUDA_DEVICE_H_
