// One connection to a KvPublisher, on its single I/O thread.
#ifndef WEFT_DOORS_KV_EVENTS_KV_CLIENT_H_
#define WEFT_DOORS_KV_EVENTS_KV_CLIENT_H_

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doors/kv_events/kv_event_log.h"
#include "doors/kv_events/zmtp.h"

namespace weft::serve {

// What clients need to know of their publisher, which they may outlive as a closed connection.
struct KvPublisherState {
  // Writes to the log, but not again soon: a client that is refused tries again and again.
  void Complain(std::string_view text);

  std::string topic;
  size_t max_unsent_bytes = 0;
  KvEventLog log;
  std::optional<std::chrono::steady_clock::time_point> complained = std::nullopt;
};

class KvClient : public std::enable_shared_from_this<KvClient> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  virtual ~KvClient() = default;
  void Start(const char* kind);
  void Close();
  // Sends batches and answers that wait, as long as HasRoom.
  virtual void SendMore() = 0;

 protected:
  // `closed` is called once.
  KvClient(Socket socket, std::vector<std::string> kinds, KvPublisherState* state,
           std::function<void(KvClient*)> closed);

  // False: the client must go.
  virtual bool OnIncoming(const zmtp::Incoming& incoming) = 0;
  KvPublisherState& state() { return state_; }
  bool HasRoom() const { return unsent_bytes_ <= state_.max_unsent_bytes; }
  // The bytes are sent after all before them; `payload`, which may be null, after `head`.
  void Send(std::string head, std::shared_ptr<const std::string> payload = nullptr);

 private:
  struct Piece {
    std::string head;
    std::shared_ptr<const std::string> payload;
  };
  void Read();
  void OnRead(size_t n_bytes);
  void Write();

  Socket socket_;
  boost::asio::steady_timer greeting_timer_;
  KvPublisherState& state_;
  const std::function<void(KvClient*)> closed_;
  zmtp::Reader reader_;
  std::array<char, 4096> incoming_;
  std::deque<Piece> unsent_;  // the first one is being sent
  size_t unsent_bytes_ = 0;
  bool is_closed_ = false;
};

// A client of the PUB socket.
class KvSubscriber final : public KvClient {
 public:
  KvSubscriber(Socket socket, KvPublisherState* state, std::function<void(KvClient*)> closed)
      : KvClient(std::move(socket), {"SUB", "XSUB"}, state, std::move(closed)) {}
  void SendMore() override;

 private:
  bool OnIncoming(const zmtp::Incoming& incoming) override;

  std::multiset<std::string> topics_;  // their beginnings
  bool is_subscribed_ = false;
  std::optional<uint64_t> next_;  // the batch to send; none: first a snapshot
};

// A client of the ROUTER socket.
class KvReplayer final : public KvClient {
 public:
  KvReplayer(Socket socket, KvPublisherState* state, std::function<void(KvClient*)> closed)
      : KvClient(std::move(socket), {"REQ", "DEALER"}, state, std::move(closed)) {}
  void SendMore() override;

 private:
  struct Request {
    std::vector<std::string> envelope;  // returned before each answer
    uint64_t next = 0;
    uint64_t last = 0;  // the latest batch when it was asked
  };
  bool OnIncoming(const zmtp::Incoming& incoming) override;
  void Answer(const Request& request, const std::string& number,
              const std::shared_ptr<const std::string>& payload);

  std::deque<Request> requests_;  // the first one is being answered
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_KV_EVENTS_KV_CLIENT_H_
