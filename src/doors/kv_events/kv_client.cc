#include "doors/kv_events/kv_client.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/big_endian.h"
#include "base/log.h"
#include "base/strings.h"
#include "doors/http/client_socket.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kGreetingTime{10}, kComplaintPause{10};
constexpr size_t kMaxTopics = 64, kMaxTopicBytes = 1024, kMaxRequests = 16, kMaxEnvelope = 4;
constexpr size_t kNumberBytes = 8;
constexpr uint64_t kEnd = ~uint64_t{0};  // -1

// The frames before a payload, and the head of its own.
std::string HeadOf(const std::vector<std::string>& frames, size_t payload_bytes) {
  std::string head;
  for (const std::string& frame : frames) {
    StrAppend(&head, zmtp::FrameHead(frame.size(), /*more=*/true), frame);
  }
  return head + zmtp::FrameHead(payload_bytes, /*more=*/false);
}

}  // namespace

void KvPublisherState::Complain(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (complained && now - *complained < kComplaintPause) return;
  complained = now;
  LogLine(StrCat("KV events: ", text));
}

KvClient::KvClient(Socket socket, std::vector<std::string> kinds, KvPublisherState* state,
                   std::function<void(KvClient*)> closed)
    : socket_(std::move(socket)),
      greeting_timer_(socket_.get_executor()),
      state_(*state),
      closed_(std::move(closed)),
      reader_(std::move(kinds)) {}

void KvClient::Start(const char* kind) {
  SetUpClientSocket(&socket_);
  greeting_timer_.expires_after(kGreetingTime);
  greeting_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->reader_.is_ready()) self->Close();
  });
  Send(zmtp::Hello(kind));
  Read();
}

void KvClient::Close() {
  if (std::exchange(is_closed_, true)) return;
  error_code ignored;
  greeting_timer_.cancel();
  socket_.close(ignored);
  closed_(this);
}

void KvClient::Read() {
  socket_.async_read_some(asio::buffer(incoming_),
                          [self = shared_from_this()](const error_code& error, size_t n_bytes) {
                            if (error) return self->Close();
                            self->OnRead(n_bytes);
                          });
}

void KvClient::OnRead(size_t n_bytes) {
  if (is_closed_) return;
  std::vector<zmtp::Incoming> all;
  const Status status = reader_.Feed({incoming_.data(), n_bytes}, &all);
  bool stays = status.ok();
  if (!stays) state_.Complain(StrCat("a client is refused: ", Message(status)));
  for (size_t i = 0; stays && i < all.size(); ++i) {
    if (all[i].command == "PING") {
      // Anything that is sent is as good an answer.
      if (unsent_.empty()) Send(zmtp::Pong(all[i].frames.front()));
    } else if (all[i].command != "PONG") {
      stays = OnIncoming(all[i]);
    }
  }
  if (!stays) return Close();
  Read();
}

void KvClient::Send(std::string head, std::shared_ptr<const std::string> payload) {
  if (is_closed_) return;
  unsent_bytes_ += head.size() + (payload != nullptr ? payload->size() : 0);
  unsent_.push_back({std::move(head), std::move(payload)});
  if (unsent_.size() == 1) Write();
}

void KvClient::Write() {
  const Piece& piece = unsent_.front();
  const std::array<asio::const_buffer, 2> buffers = {
      asio::buffer(piece.head),
      piece.payload != nullptr ? asio::buffer(*piece.payload) : asio::const_buffer()};
  asio::async_write(socket_, buffers,
                    [self = shared_from_this()](const error_code& error, size_t n_bytes) {
                      if (error) return self->Close();
                      if (self->is_closed_) return;
                      self->unsent_bytes_ -= n_bytes;
                      self->unsent_.pop_front();
                      if (!self->unsent_.empty()) self->Write();
                      self->SendMore();
                    });
}

bool KvSubscriber::OnIncoming(const zmtp::Incoming& incoming) {
  const auto subscription = zmtp::SubscriptionOf(incoming);
  if (!subscription) return false;
  if (!subscription->begins) {
    const auto topic = topics_.find(subscription->topic);
    if (topic != topics_.end()) topics_.erase(topic);
  } else if (topics_.size() == kMaxTopics || subscription->topic.size() > kMaxTopicBytes) {
    return false;
  } else {
    topics_.insert(subscription->topic);
  }
  const bool wants = std::ranges::any_of(
      topics_, [&](const std::string& topic) { return state().topic.starts_with(topic); });
  if (wants && !is_subscribed_) next_.reset();
  is_subscribed_ = wants;
  SendMore();
  return true;
}

void KvSubscriber::SendMore() {
  while (is_subscribed_ && HasRoom() && next_.value_or(0) <= state().log.latest().number) {
    const KvEventBatch batch = next_ ? state().log.Get(*next_) : state().log.Snapshot();
    next_ = batch.number + 1;
    Send(HeadOf({state().topic, BigEndian(batch.number, kNumberBytes)}, batch.payload->size()),
         batch.payload);
  }
}

bool KvReplayer::OnIncoming(const zmtp::Incoming& incoming) {
  if (!incoming.command.empty() || requests_.size() == kMaxRequests) return false;
  Request request{.envelope = incoming.frames};
  const std::string number = request.envelope.back();
  request.envelope.pop_back();
  if (number.size() != kNumberBytes || request.envelope.size() > kMaxEnvelope) return false;
  request.next = FromBigEndian(number);
  request.last = state().log.latest().number;
  requests_.push_back(std::move(request));
  SendMore();
  return true;
}

void KvReplayer::SendMore() {
  static const auto nothing = std::make_shared<const std::string>();
  while (!requests_.empty() && HasRoom()) {
    Request& request = requests_.front();
    if (request.next > request.last) {
      Answer(request, BigEndian(kEnd, kNumberBytes), nothing);
      requests_.pop_front();
      continue;
    }
    const KvEventBatch batch = state().log.Get(request.next);
    request.next = batch.number + 1;
    Answer(request, BigEndian(batch.number, kNumberBytes), batch.payload);
  }
}

void KvReplayer::Answer(const Request& request, const std::string& number,
                        const std::shared_ptr<const std::string>& payload) {
  std::vector<std::string> frames = request.envelope;
  frames.push_back(number);
  Send(HeadOf(frames, payload->size()), payload);
}

}  // namespace weft::serve
