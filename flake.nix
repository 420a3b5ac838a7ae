# Builds Weft with Nix. Not tried yet.
#
#   nix run . -- serve -m model.gguf
{
  description = "Inference server for many conversations on one language model";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-24.11";
  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in {
      packages = each (pkgs: {
        default = pkgs.stdenv.mkDerivation {
          pname = "weft";
          version = "0.1.0";
          src = self;
          nativeBuildInputs = with pkgs; [ cmake ninja pkg-config protobuf grpc python3 ];
          buildInputs = with pkgs; [
            abseil-cpp boost cli11 curl grpc libedit libjpeg libpng libwebp nlohmann_json openssl
            prometheus-cpp protobuf re2 utf8proc xxHash zlib zstd
          ];
          cmakeFlags = [ "-DWEFT_TESTS=OFF" "-DWEFT_CUDA=OFF" ];
        };
      });
    };
}
