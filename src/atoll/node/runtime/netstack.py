"""What a sentry's network stack is told at a restore: the link of its namespace, as `runsc restore` would find it.

runsc asks the namespace about links, addresses and routes, takes the address away from the kernel, opens a packet
socket, and hands all of it over. Ours are the same in every namespace (`network.plan`), so there is nothing to ask but
the link's hardware address.
"""

from __future__ import annotations

import array
import base64
import fcntl
import ipaddress
import socket
import struct
from typing import Any

from atoll.node.network import namespaces, plan

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 4 << 20  # runsc's own: the kernel's default loses packets at high rates
_SIOCSIFADDR, _SIOCETHTOOL = 0x8916, 0x8946
_ETHTOOL_GGSO = 0x23
_GSO_BYTES = 65536  # of a veth that nobody has changed


def link_open(netns_path: str) -> socket.socket:
    """A packet socket on the inner link, from which on the sandbox's own stack has the address and the kernel has not.

    Idempotent, as far as the namespace goes.
    """
    with namespaces.opened(netns_path) as fd, namespaces.inside(fd):
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            link.bind((plan.INNER_LINK, _ETH_P_ALL))
            _address_drop()
            if _segments(link):
                link.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        except BaseException:
            link.close()
            raise
    for option in (_SO_RCVBUFFORCE, _SO_SNDBUFFORCE):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    return link


def arguments(link: socket.socket) -> dict[str, Any]:
    """What goes with that socket."""
    segments = bool(link.getsockopt(_SOL_PACKET, _PACKET_VNET_HDR))
    inner = ipaddress.ip_interface(f"{plan.INNER_ADDRESS}/{plan.PREFIX_BITS}")
    loopback = ipaddress.ip_interface("127.0.0.1/8")
    everywhere = ipaddress.ip_network("0.0.0.0/0")
    return {
        "LoopbackLinks": [{"Name": "lo", "Addresses": [_address(loopback)], "Routes": [_route(loopback.network)]}],
        "FDBasedLinks": [
            {
                "Name": plan.INNER_LINK,
                "MTU": 1500,
                "Addresses": [_address(inner)],
                "Routes": [_route(everywhere, plan.OUTER_ADDRESS), _route(inner.network)],
                "GSOMaxSize": _GSO_BYTES,
                "GVisorGSOEnabled": not segments,
                "RXChecksumOffload": True,
                "LinkAddress": _base64(link.getsockname()[4]),
                "QDisc": 1,  # first in, first out
                "NumChannels": 1,
            }
        ],
        "IsRestore": True,
    }


def _address(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> dict[str, Any]:
    return {"Address": str(interface.ip), "PrefixLen": interface.network.prefixlen}


def _route(network: ipaddress.IPv4Network | ipaddress.IPv6Network, gateway: str = "") -> dict[str, Any]:
    mask = _base64(network.netmask.packed)
    return {"Destination": {"IP": str(network.network_address), "Mask": mask}, "Gateway": gateway}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _address_drop() -> None:
    """As long as the kernel has the address too, it answers in the sandbox's place, with a refusal."""
    nothing = struct.pack("=HH4s8x", socket.AF_INET, 0, bytes(4))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        fcntl.ioctl(asking, _SIOCSIFADDR, struct.pack("=16s16s8x", plan.INNER_LINK.encode(), nothing))


def _segments(link: socket.socket) -> bool:
    """Whether the link cuts large pieces into packets."""
    value = array.array("I", [_ETHTOOL_GGSO, 0])
    where, _ = value.buffer_info()
    fcntl.ioctl(link, _SIOCETHTOOL, struct.pack("=16sQ16x", plan.INNER_LINK.encode(), where))
    return bool(value[1])
