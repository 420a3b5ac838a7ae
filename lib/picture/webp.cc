// WebP, by libwebp: stills, and the first frame of animations.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <vector>

#include "picture/formats.h"

namespace weft::picture {
namespace {

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// The canvas is white where the frame does not reach.
void PutFrame(const std::vector<uint8_t>& rgba, const WebPIterator& frame, Picture* canvas) {
  for (int y = 0; y < frame.height; ++y) {
    PutRgba(rgba.data() + size_t{4} * static_cast<size_t>(frame.width) * y, frame.width,
            canvas->row(frame.y_offset + y) + static_cast<size_t>(frame.x_offset) * kChannels);
  }
}

Status DecodeFrame(const WebPIterator& frame, Picture* canvas) {
  const bool fits = frame.width > 0 && frame.height > 0 && frame.x_offset >= 0 &&
                    frame.y_offset >= 0 && frame.x_offset <= canvas->width - frame.width &&
                    frame.y_offset <= canvas->height - frame.height;
  if (!fits) return BadFile(Format::kWebp, "its frame lies outside of it");
  const size_t stride = size_t{4} * static_cast<size_t>(frame.width);
  std::vector<uint8_t> rgba(stride * static_cast<size_t>(frame.height));
  int width = 0, height = 0;
  if (WebPGetInfo(frame.fragment.bytes, frame.fragment.size, &width, &height) == 0 ||
      width != frame.width || height != frame.height ||
      WebPDecodeRGBAInto(frame.fragment.bytes, frame.fragment.size, rgba.data(), rgba.size(),
                         static_cast<int>(stride)) == nullptr) {
    return BadFile(Format::kWebp, "it is damaged, or ends too early");
  }
  PutFrame(rgba, frame, canvas);
  return OkStatus();
}

}  // namespace

StatusOr<Decoded> DecodeWebp(Bytes file, const Limits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  const std::unique_ptr<WebPDemuxer, DemuxerDeleter> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return BadFile(Format::kWebp, "it is damaged, or ends too early");
  const int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const int64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  WEFT_RETURN_IF_ERROR(CheckSize(Format::kWebp, width, height, limits));
  Decoded decoded{Picture(static_cast<int>(width), static_cast<int>(height))};
  std::fill(decoded.picture.pixels.begin(), decoded.picture.pixels.end(), uint8_t{255});
  WebPIterator frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    return BadFile(Format::kWebp, "it has no frame");
  }
  const Status status = DecodeFrame(frame, &decoded.picture);
  WebPDemuxReleaseIterator(&frame);
  WEFT_RETURN_IF_ERROR(status);
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) != 0) {
    const auto begin = reinterpret_cast<const std::byte*>(chunk.chunk.bytes);
    decoded.exif = Bytes(begin, chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return decoded;
}

}  // namespace weft::picture
