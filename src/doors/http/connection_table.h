// The connections of a server, and which of them makes room when another comes.
//
// An address (see ClientNetwork) has at most half of them. If it has, or if all are taken, a
// connection goes that waits for a request's head: of the address with the most connections, first
// one that never sent a request, then the one that has been waiting the longest. Requests that have
// begun are never cut short for that. If no connection waits, the new one is refused.
//
// I/O thread only.
#ifndef WEFT_DOORS_HTTP_CONNECTION_TABLE_H_
#define WEFT_DOORS_HTTP_CONNECTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace weft::serve {

class HttpConnection;

class ConnectionTable {
 public:
  explicit ConnectionTable(size_t max_served);

  enum class Verdict {
    kServe,
    kRefuse,    // there is room to tell it so
    kTurnAway,  // not even for that
  };
  // What should become of a new connection from `address`; closes another one if it should make
  // room.
  Verdict Judge(const std::string& address);
  // REQUIRES: Judge has just returned `verdict`, one of the first two.
  void Add(std::shared_ptr<HttpConnection> connection, Verdict verdict);
  void Remove(HttpConnection* closed);

  size_t size() const { return n_served_ + refused_.size(); }
  std::vector<std::shared_ptr<HttpConnection>> All() const;

 private:
  using Connections = std::set<std::shared_ptr<HttpConnection>>;

  // Closes the one of them that has been waiting the longest. False if none waits.
  static bool CloseWaiting(const Connections& connections);
  bool MakeRoomFor(const std::string& address);

  const size_t max_served_, max_of_address_, max_refused_;
  std::map<std::string, Connections> served_;  // by address, none empty
  size_t n_served_ = 0;
  Connections refused_;  // until they have been told
};

// How many connections, at most `wanted`, a process with this many descriptors may serve: some are
// reserved for refusals, and some for files.
size_t MaxServedConnections(size_t wanted, uint64_t descriptors);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_CONNECTION_TABLE_H_
