"""Drives the pipes with impacket: arguments are name=port."""
import sys
import traceback

from impacket.dcerpc.v5 import lsad, lsat, rpcrt, samr, srvs, transport, wkst
from impacket.dcerpc.v5.dtypes import MAXIMUM_ALLOWED, NULL, RPC_SID
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_LEVEL_CONNECT, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY)

ports = dict(argument.split("=") for argument in sys.argv[1:])


def connect(pipe, interface, level=None, user="alice", password="secret", fragment=None):
    link = transport.DCERPCTransportFactory("ncacn_ip_tcp:127.0.0.1[%s]" % ports[pipe])
    link.set_connect_timeout(20)
    rpc = link.get_dce_rpc()
    if level is not None:
        link.set_credentials(user, password, "NODE1")
        rpc.set_credentials(user, password, "NODE1")
        rpc.set_auth_level(level)
    if fragment:
        rpc.set_max_fragment_size(fragment)
    rpc.connect()
    rpc.bind(interface)
    return rpc


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        text = "%s %s" % (error, getattr(error, "error_code", None) and hex(error.error_code))
        assert code.lower() in text.lower(), text
        return
    raise AssertionError("%s was not refused" % call)


def text(value):
    return value[:-1] if value.endswith("\0") else value


def shares(rpc):
    answer = srvs.hNetrShareEnum(rpc, 1)
    entries = answer["InfoStruct"]["ShareInfo"]["Level1"]["Buffer"]
    found = {text(e["shi1_netname"]): (e["shi1_type"], text(e["shi1_remark"])) for e in entries}
    assert found["vm"] == (0, "Virtual machines"), found
    assert found["IPC$"][0] == 0x80000003, found
    assert found["backup$"][0] == 0, found


def srvsvc():
    for fragment in (None, 40, 7):
        rpc = connect("srvsvc", srvs.MSRPC_UUID_SRVS, fragment=fragment)
        shares(rpc)
    for level in (0, 1, 2, 501, 502, 503):
        answer = srvs.hNetrShareEnum(rpc, level)
        assert answer["TotalEntries"] == 3, answer.dump()
        if level != 503:
            info = srvs.hNetrShareGetInfo(rpc, "VM\0", level)["InfoStruct"]["ShareInfo%d" % level]
            assert text(info["shi%d_netname" % level]) == "vm"
    info = srvs.hNetrShareGetInfo(rpc, "vm\0", 1005)["InfoStruct"]["ShareInfo1005"]
    assert info["shi1005_flags"] == 0x4000
    info = srvs.hNetrShareGetInfo(rpc, "vm\0", 502)["InfoStruct"]["ShareInfo502"]
    assert text(info["shi502_path"]) == "C:\\vm" and info["shi502_max_uses"] == 0xffffffff
    refused("0x906", srvs.hNetrShareGetInfo, rpc, "none\0", 1)
    # One at a time.
    resume, names = 0, []
    while True:
        request = srvs.NetrShareEnum()
        request["ServerName"] = NULL
        request["PreferedMaximumLength"] = 1
        request["ResumeHandle"] = resume
        request["InfoStruct"]["ShareInfo"]["tag"] = 0
        request["InfoStruct"]["ShareInfo"]["Level0"]["Buffer"] = NULL
        request["InfoStruct"]["Level"] = 0
        answer = rpc.request(request, checkError=False)
        names += [text(e["shi0_netname"]) for e in answer["InfoStruct"]["ShareInfo"]["Level0"]["Buffer"]]
        resume = answer["ResumeHandle"]
        if answer["ErrorCode"] == 0:
            break
        assert answer["ErrorCode"] == 234 and resume == len(names), answer.dump()
    assert len(names) == 3 and resume == 0

    share = srvs.SHARE_INFO_2()
    share["shi2_netname"] = "new\0"
    share["shi2_type"] = 0
    share["shi2_remark"] = "A remark\0"
    share["shi2_permissions"] = 0
    share["shi2_max_uses"] = 5
    share["shi2_current_uses"] = 0
    share["shi2_path"] = "C:\\new\0"
    share["shi2_passwd"] = NULL
    request = srvs.NetrShareAdd()
    request["ServerName"] = NULL
    request["Level"] = 2
    request["InfoStruct"]["tag"] = 2
    request["InfoStruct"]["ShareInfo2"] = share
    request["ParmErr"] = NULL
    rpc.request(request)
    refused("0x846", rpc.request, request)
    change = srvs.NetrShareSetInfo()
    change["ServerName"] = NULL
    change["NetName"] = "new\0"
    change["Level"] = 1004
    change["ShareInfo"]["tag"] = 1004
    change["ShareInfo"]["ShareInfo1004"]["shi1004_remark"] = "Another\0"
    change["ParmErr"] = NULL
    rpc.request(change)
    info = srvs.hNetrShareGetInfo(rpc, "new\0", 2)["InfoStruct"]["ShareInfo2"]
    assert text(info["shi2_remark"]) == "Another" and info["shi2_max_uses"] == 5
    assert text(info["shi2_path"]) == "C:\\new"
    srvs.hNetrShareDel(rpc, "new\0")
    refused("0x906", srvs.hNetrShareDel, rpc, "new\0")
    refused("access_denied", srvs.hNetrShareDel, rpc, "IPC$\0")

    for level in (0, 1, 2, 10, 502):
        answer = srvs.hNetrSessionEnum(rpc, NULL, NULL, level)
        entry = answer["InfoStruct"]["SessionInfo"]["Level%d" % level]["Buffer"][0]
        assert text(entry["sesi%d_cname" % level]) == "192.0.2.1"
    answer = srvs.hNetrFileEnum(rpc, NULL, NULL, 3)
    files = answer["InfoStruct"]["FileInfo"]["Level3"]["Buffer"]
    assert [text(f["fi3_path_name"]) for f in files] == ["C:\\vm\\a.vhdx", "C:\\vm\\b.vhdx"]
    srvs.hNetrFileGetInfo(rpc, 11, 3)
    srvs.hNetrFileClose(rpc, 12)
    refused("0x90a", srvs.hNetrFileClose, rpc, 12)
    for level in (0, 1):
        answer = srvs.hNetrConnectionEnum(rpc, "vm\0", level)
        assert answer["TotalEntries"] == 1
    srvs.hNetrSessionDel(rpc, "\\\\192.0.2.1\0", NULL)
    refused("0x908", srvs.hNetrSessionDel, rpc, "\\\\192.0.2.1\0", NULL)
    for level in (100, 101, 102):
        info = srvs.hNetrServerGetInfo(rpc, level)["InfoStruct"]["ServerInfo%d" % level]
        assert text(info["sv%d_name" % level]) == "NODE1"
    clock = srvs.hNetrRemoteTOD(rpc)["BufferPtr"]
    found = [clock["tod_" + part] for part in ("year", "month", "day", "weekday", "hours", "mins", "secs", "hunds")]
    assert found == [2026, 5, 27, 3, 23, 8, 17, 25], found
    srvs.hNetrServerTransportEnum(rpc, 0)
    canonical = srvs.hNetprPathCanonicalize(rpc, "c:\\a\\..\\b\0", "\0")
    assert b"".join(canonical["Outbuf"]).decode("utf-16le").rstrip("\0") == "C:\\b", canonical.dump()
    srvs.hNetprPathType(rpc, "c:\\a\0", 0)
    srvs.hNetprNameValidate(rpc, "share\0", 9)
    canonical = srvs.hNetprNameCanonicalize(rpc, "share\0", 50, 9)
    assert srvs.hNetprNameCompare(rpc, "A\0", "a\0", 9)["ErrorCode"] == 0
    assert srvs.hNetprPathCompare(rpc, "c:\\a\0", "C:\\x\\..\\A\0")["ErrorCode"] == 0
    refused("nca_s_op_rng_error", unknown, rpc)

    plain = connect("plain-srvsvc", srvs.MSRPC_UUID_SRVS)
    shares(plain)
    srvs.hNetrServerGetInfo(plain, 101)
    for call in (lambda: srvs.hNetrShareEnum(plain, 2), lambda: srvs.hNetrShareGetInfo(plain, "vm\0", 502),
                 lambda: srvs.hNetrShareDel(plain, "vm\0"), lambda: srvs.hNetrSessionEnum(plain, NULL, NULL, 10),
                 lambda: srvs.hNetrFileEnum(plain, NULL, NULL, 3), lambda: srvs.hNetrFileClose(plain, 11),
                 lambda: srvs.hNetrConnectionEnum(plain, "vm\0", 1), lambda: plain.request(request),
                 lambda: plain.request(change), lambda: srvs.hNetrServerGetInfo(plain, 102)):
        refused("access_denied", call)
    # Who proves to be an administrator inside the pipe is one, and the other way round.
    shares(connect("plain-srvsvc", srvs.MSRPC_UUID_SRVS, RPC_C_AUTHN_LEVEL_PKT_PRIVACY))
    srvs.hNetrShareEnum(connect("plain-srvsvc", srvs.MSRPC_UUID_SRVS, RPC_C_AUTHN_LEVEL_PKT_PRIVACY), 2)
    bob = connect("srvsvc", srvs.MSRPC_UUID_SRVS, RPC_C_AUTHN_LEVEL_PKT_PRIVACY, user="bob")
    refused("access_denied", srvs.hNetrShareEnum, bob, 2)


def unknown(rpc):
    rpc.call(99, bytes(8))
    rpc.recv()


def protected():
    for level in (RPC_C_AUTHN_LEVEL_CONNECT, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY):
        for fragment in (None, 33):
            rpc = connect("srvsvc", srvs.MSRPC_UUID_SRVS, level, fragment=fragment)
            for turn in range(3):
                try:
                    shares(rpc)
                except Exception as error:
                    raise AssertionError("level %d fragment %s turn %d: %s" % (level, fragment, turn, error))
        wrong = lambda: shares(connect("srvsvc", srvs.MSRPC_UUID_SRVS, level, password="wrong"))
        refused("access_denied", wrong)


def wkssvc():
    for name in ("wkssvc", "plain-wkssvc"):
        rpc = connect(name, wkst.MSRPC_UUID_WKST)
        for level in (100, 101):
            info = wkst.hNetrWkstaGetInfo(rpc, level)["WkstaInfo"]["WkstaInfo%d" % level]
            assert text(info["wki%d_computername" % level]) == "NODE1"
            assert text(info["wki%d_langroup" % level]) == "WORKGROUP"
    refused("access_denied", wkst.hNetrWkstaGetInfo, rpc, 102)
    wkst.hNetrWkstaGetInfo(connect("wkssvc", wkst.MSRPC_UUID_WKST), 102)


def contexts():
    """Interfaces that are not there, transfer syntaxes that nobody speaks, and a second interface on one pipe."""
    refused("abstract_syntax_not_supported", connect, "srvsvc", lsat.MSRPC_UUID_LSAT)
    link = transport.DCERPCTransportFactory("ncacn_ip_tcp:127.0.0.1[%s]" % ports["srvsvc"])
    rpc = link.get_dce_rpc()
    rpc.connect()
    refused("proposed_transfer_syntaxes_not_supported", rpc.bind, srvs.MSRPC_UUID_SRVS,
            transfer_syntax=("71710533-BEBA-4937-8319-B5DBEF9CCC36", "1.0"))
    rpc = connect("lsarpc", lsat.MSRPC_UUID_LSAT)
    second = rpc.alter_ctx(samr.MSRPC_UUID_SAMR)
    samr.hSamrConnect(second)
    lsad.hLsarOpenPolicy2(rpc)
    bogus = connect_bogus()
    shares(bogus)


def connect_bogus():
    link = transport.DCERPCTransportFactory("ncacn_ip_tcp:127.0.0.1[%s]" % ports["srvsvc"])
    rpc = link.get_dce_rpc()
    rpc.connect()
    rpc.bind(srvs.MSRPC_UUID_SRVS, bogus_binds=7)
    return rpc


SID = "S-1-5-21-1-2-3"


def lsarpc():
    for name in ("lsarpc", "plain-lsarpc"):
        rpc = connect(name, lsat.MSRPC_UUID_LSAT)
        access = MAXIMUM_ALLOWED | lsat.POLICY_LOOKUP_NAMES
        lsad.hLsarOpenPolicy(rpc, lsat.POLICY_LOOKUP_NAMES)
        policy = lsad.hLsarOpenPolicy2(rpc, access)["PolicyHandle"]
        for query in (lsad.hLsarQueryInformationPolicy, lsad.hLsarQueryInformationPolicy2):
            kind = lsad.POLICY_INFORMATION_CLASS
            info = query(rpc, policy, kind.PolicyAccountDomainInformation)["PolicyInformation"]
            info = info["PolicyAccountDomainInfo"]
            assert info["DomainName"] == "NODE1" and info["DomainSid"].formatCanonical() == SID
            info = query(rpc, policy, kind.PolicyPrimaryDomainInformation)["PolicyInformation"]
            assert info["PolicyPrimaryDomainInfo"]["Name"] == "WORKGROUP"
            info = query(rpc, policy, kind.PolicyDnsDomainInformation)["PolicyInformation"]
            assert info["PolicyDnsDomainInfo"]["Name"] == "WORKGROUP"
        sids = [SID + "-1000", "S-1-5-32-544", "S-1-1-0", "S-1-5-18", SID + "-513"]
        for level, call in ((1, lsat.hLsarLookupSids), (1, lsat.hLsarLookupSids2)):
            answer = call(rpc, policy, sids)
            names = [(n["Name"], n["Use"], n["DomainIndex"]) for n in answer["TranslatedNames"]["Names"]]
            domains = [d["Name"] for d in answer["ReferencedDomains"]["Domains"]]
            assert [n[:2] for n in names] == [("bob", 1), ("Administrators", 4), ("Everyone", 5), ("SYSTEM", 5),
                                              ("None", 2)], names
            assert domains[names[0][2]] == "NODE1" and domains[names[1][2]] == "BUILTIN", (domains, names)
        refused("STATUS_SOME_NOT_MAPPED", lsat.hLsarLookupSids, rpc, policy, [SID + "-1000", SID + "-9999"])
        refused("STATUS_NONE_MAPPED", lsat.hLsarLookupSids, rpc, policy, [SID + "-9999"])
        for call in (lsat.hLsarLookupNames, lsat.hLsarLookupNames2, lsat.hLsarLookupNames3):
            answer = call(rpc, policy, ("bob", "NODE1\\alice", "BUILTIN\\Administrators", "Everyone"))
            found = answer["TranslatedSids"]["Sids"]
            assert [s["Use"] for s in found] == [1, 1, 4, 5], answer.dump()
            if call is lsat.hLsarLookupNames3:
                assert [s["Sid"].formatCanonical() for s in found[:3]] == [SID + "-1000", SID + "-1001", "S-1-5-32-544"]
            else:
                assert [s["RelativeId"] for s in found[:3]] == [1000, 1001, 544]
        refused("STATUS_SOME_NOT_MAPPED", lsat.hLsarLookupNames, rpc, policy, ("bob", "nobody"))
        refused("STATUS_NONE_MAPPED", lsat.hLsarLookupNames, rpc, policy, ("OTHER\\bob",))
        answer = lsat.hLsarGetUserName(rpc)
        assert answer["UserName"] == "bob", answer.dump()
        refused("STATUS_NO_MORE_ENTRIES", lsad.hLsarEnumerateTrustedDomainsEx, rpc, policy)
        lsad.hLsarEnumerateAccountRights(rpc, policy, "S-1-5-32-544") if name == "lsarpc" else None
        refused("OBJECT_NAME_NOT_FOUND", lsad.hLsarEnumerateAccountRights, rpc, policy, SID + "-1000")
        lsad.hLsarClose(rpc, policy)
        refused("context_mismatch", lsad.hLsarClose, rpc, policy)
    refused("STATUS_ACCESS_DENIED", lsad.hLsarOpenPolicy2, rpc, lsad.POLICY_CREATE_ACCOUNT)


def samr_():
    rpc = connect("samr", samr.MSRPC_UUID_SAMR)
    for call in (samr.hSamrConnect, samr.hSamrConnect2, samr.hSamrConnect4, samr.hSamrConnect5):
        server = call(rpc)["ServerHandle"]
    domains = samr.hSamrEnumerateDomainsInSamServer(rpc, server)["Buffer"]["Buffer"]
    assert [d["Name"] for d in domains] == ["NODE1", "Builtin"]
    sid = samr.hSamrLookupDomainInSamServer(rpc, server, "NODE1")["DomainId"]
    assert sid.formatCanonical() == SID
    refused("STATUS_NO_SUCH_DOMAIN", samr.hSamrLookupDomainInSamServer, rpc, server, "OTHER")
    domain = samr.hSamrOpenDomain(rpc, server, domainId=sid)["DomainHandle"]
    builtin = RPC_SID()
    builtin.fromCanonical("S-1-5-32")
    builtin = samr.hSamrOpenDomain(rpc, server, domainId=builtin)["DomainHandle"]
    kinds = samr.DOMAIN_INFORMATION_CLASS
    for kind in (kinds.DomainPasswordInformation, kinds.DomainGeneralInformation, kinds.DomainLogoffInformation,
                 kinds.DomainOemInformation, kinds.DomainNameInformation,
                 kinds.DomainReplicationInformation, kinds.DomainModifiedInformation,
                 kinds.DomainGeneralInformation2, kinds.DomainLockoutInformation, kinds.DomainModifiedInformation2):
        info = samr.hSamrQueryInformationDomain(rpc, domain, kind)["Buffer"]
        samr.hSamrQueryInformationDomain2(rpc, domain, kind)
        if kind == kinds.DomainGeneralInformation:
            assert info["General"]["DomainName"] == "NODE1" and info["General"]["UserCount"] == 2
        if kind == kinds.DomainGeneralInformation2:
            assert info["General2"]["I1"]["AliasCount"] == 1
    users = samr.hSamrEnumerateUsersInDomain(rpc, domain)["Buffer"]["Buffer"]
    assert [(u["RelativeId"], u["Name"]) for u in users] == [(1000, "bob"), (1001, "alice")]
    groups = samr.hSamrEnumerateGroupsInDomain(rpc, domain)["Buffer"]["Buffer"]
    assert [(u["RelativeId"], u["Name"]) for u in groups] == [(513, "None")]
    aliases = samr.hSamrEnumerateAliasesInDomain(rpc, domain)["Buffer"]["Buffer"]
    assert [(u["RelativeId"], u["Name"]) for u in aliases] == [(1002, "staff")]
    aliases = samr.hSamrEnumerateAliasesInDomain(rpc, builtin)["Buffer"]["Buffer"]
    assert [u["RelativeId"] for u in aliases] == [544, 545]
    found = samr.hSamrLookupNamesInDomain(rpc, domain, ("bob", "staff", "None"))
    assert [e["Data"] for e in found["RelativeIds"]["Element"]] == [1000, 1002, 513]
    assert [e["Data"] for e in found["Use"]["Element"]] == [1, 4, 2]
    found = samr.hSamrLookupIdsInDomain(rpc, domain, (1001, 1002, 513))
    assert [e["Data"] for e in found["Names"]["Element"]] == ["alice", "staff", "None"]
    refused("STATUS_NONE_MAPPED", samr.hSamrLookupNamesInDomain, rpc, domain, ("nobody",))
    user = samr.hSamrOpenUser(rpc, domain, userId=1001)["UserHandle"]
    refused("STATUS_NO_SUCH_USER", samr.hSamrOpenUser, rpc, domain, userId=4711)
    kinds = samr.USER_INFORMATION_CLASS
    for kind in (kinds.UserGeneralInformation, kinds.UserPreferencesInformation, kinds.UserLogonInformation,
                 kinds.UserAccountInformation, kinds.UserNameInformation, kinds.UserAccountNameInformation,
                 kinds.UserFullNameInformation, kinds.UserPrimaryGroupInformation, kinds.UserHomeInformation,
                 kinds.UserScriptInformation, kinds.UserProfileInformation, kinds.UserAdminCommentInformation,
                 kinds.UserWorkStationsInformation, kinds.UserControlInformation, kinds.UserExpiresInformation,
                 kinds.UserParametersInformation, kinds.UserLogonHoursInformation, kinds.UserAllInformation):
        info = samr.hSamrQueryInformationUser(rpc, user, kind)["Buffer"]
        samr.hSamrQueryInformationUser2(rpc, user, kind)
    info = info["All"]
    assert info["UserName"] == "alice" and info["FullName"] == "Alice \u00c4" and info["UserId"] == 1001
    assert info["PrimaryGroupId"] == 513 and info["UserAccountControl"] & 0x10
    groups = samr.hSamrGetGroupsForUser(rpc, user)["Groups"]["Groups"]
    assert [g["RelativeId"] for g in groups] == [513]
    array = samr.SAMPR_PSID_ARRAY()
    member = RPC_SID()
    member.fromCanonical(SID + "-1001")
    element = samr.PSAMPR_SID_INFORMATION()
    element["SidPointer"] = member
    array["Count"] = 1
    array["Sids"].append(element)
    for handle, expected in ((domain, [1002]), (builtin, [544])):
        found = samr.hSamrGetAliasMembership(rpc, handle, array)["Membership"]["Element"]
        assert [e["Data"] for e in found] == expected
    alias = samr.hSamrOpenAlias(rpc, domain, aliasId=1002)["AliasHandle"]
    kinds = samr.ALIAS_INFORMATION_CLASS
    for kind in (kinds.AliasGeneralInformation, kinds.AliasNameInformation, kinds.AliasAdminCommentInformation):
        samr.hSamrQueryInformationAlias(rpc, alias, kind)
    members = samr.hSamrGetMembersInAlias(rpc, alias)["Members"]["Sids"]
    assert [m["SidPointer"].formatCanonical() for m in members] == [SID + "-1000", SID + "-1001"]
    group = samr.hSamrOpenGroup(rpc, domain, groupId=513)["GroupHandle"]
    kinds = samr.GROUP_INFORMATION_CLASS
    for kind in (kinds.GroupGeneralInformation, kinds.GroupNameInformation, kinds.GroupAttributeInformation,
                 kinds.GroupAdminCommentInformation):
        samr.hSamrQueryInformationGroup(rpc, group, kind)
    members = samr.hSamrGetMembersInGroup(rpc, group)["Members"]["Members"]
    assert [m["Data"] for m in members] == [1000, 1001]
    for kind, call in ((1, samr.hSamrQueryDisplayInformation), (2, samr.hSamrQueryDisplayInformation2),
                       (3, samr.hSamrQueryDisplayInformation3)):
        call(rpc, domain, kind, entryCount=100)
    assert samr.hSamrRidToSid(rpc, domain, 1000)["Sid"].formatCanonical() == SID + "-1000"
    samr.hSamrGetUserDomainPasswordInformation(rpc, user)
    samr.hSamrGetDomainPasswordInformation(rpc)
    samr.hSamrCloseHandle(rpc, user)
    refused("context_mismatch", samr.hSamrCloseHandle, rpc, user)
    plain = connect("plain-samr", samr.MSRPC_UUID_SAMR)
    refused("STATUS_ACCESS_DENIED", samr.hSamrConnect, plain)


failed = False
for part in (wkssvc, srvsvc, protected, lsarpc, samr_, contexts):
    print(part.__name__, flush=True)
    try:
        part()
    except Exception:
        failed = True
        traceback.print_exc()
sys.exit(failed)
