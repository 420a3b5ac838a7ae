// The pictures of conversations: from a file's bytes to input embeddings of the model.
//
// One thread decodes and prepares a picture at a time. The engine's thread encodes it in pieces
// between its steps (Engine::RunBeside), so decoding sessions keep their rhythm. Tenants take turns
// in both. A picture that a tenant has several times at once, or that the cache still holds, is
// encoded once; one that nobody waits for any more is given up. The prefix cache knows a picture by
// its embeddings, which are compared bit by bit, in memory and on disk.
//
// One per loaded model. Any thread.
#ifndef WEFT_ANSWER_PICTURES_H_
#define WEFT_ANSWER_PICTURES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "answer/asked_picture.h"
#include "answer/picture_stats.h"
#include "answer/prompt_rows.h"
#include "base/status.h"
#include "engine/vision/encoder.h"
#include "engine/vision/picture_cache.h"
#include "engine/vision/span.h"
#include "weft/engine.h"
#include "weft/model.h"

namespace weft::serve {

class Pictures {
 public:
  using Encoded = std::shared_ptr<const vision::EncodedPicture>;

  // `engine` must outlive it.
  Pictures(std::shared_ptr<const vision::PictureEncoder> encoder, Engine* engine,
           int64_t cache_bytes);
  // Pending calls of Encode get an error.
  ~Pictures();
  Pictures(const Pictures&) = delete;
  Pictures& operator=(const Pictures&) = delete;

  // `done` is called from any thread and must do nothing but wake somebody or copy.
  // INVALID_ARGUMENT if the file cannot be used, RESOURCE_EXHAUSTED if memory runs out, CANCELLED
  // if all who asked for it have left, as their tokens say.
  using Done = std::function<void(StatusOr<Encoded>)>;
  void Encode(std::string_view tenant, const std::shared_ptr<const PictureFile>& file,
              std::stop_token left, Done done);
  // For lengths, without encoding: zeros, one value per embedding.
  StatusOr<vision::EncodedPicture> Measure(std::string_view tenant, const PictureFile& file) const;
  // The picture as a part of a prompt. A measured one has one value per embedding there, too.
  EmbeddedRows RowsOf(std::string mark, const vision::EncodedPicture& picture) const;

  PictureStats stats() const;
  const PictureSpec& spec() const { return encoder_->spec(); }
  // Of the weights, and of the full cache.
  int64_t memory_bytes() const { return encoder_->memory_bytes() + cache_bytes_; }

 private:
  struct Shared;
  // Who waits for a picture.
  struct Waiter {
    std::stop_token left;
    Done done;
  };
  struct Job {
    std::string tenant;
    std::shared_ptr<const PictureFile> file;
    Waiter waiter;
  };
  class Work;
  void Run();
  void Prepare(Job job);
  StatusOr<std::pair<int, int>> SizeOf(std::string_view tenant, const PictureFile& file) const;

  const std::shared_ptr<const vision::PictureEncoder> encoder_;
  Engine* const engine_;
  const int64_t cache_bytes_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// Raises the engine's limits to what pictures of the projector need: bytes of embeddings in a
// session for a context of pictures, at most 1 GiB; and steps as large as a picture whose
// embeddings attend to each other.
void AdmitPictures(const PictureSpec& spec, const Model& model, EngineOptions* options);

// OK if the projector belongs to the model and the engine can place its pictures; otherwise the
// reason.
Status CheckProjector(const PictureSpec& spec, const Model& model);
// OK if the model's vocabulary has the tokens that the projector puts around pictures.
Status CheckVocabulary(const PictureSpec& spec, const Model& model);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PICTURES_H_
