"""Drives the pipes with Samba's own bindings: arguments are name=port."""
import sys
import traceback

from samba import NTSTATUSError, WERRORError, credentials, param
from samba.dcerpc import base, lsa, samr, security, srvsvc, wkssvc

ports = dict(argument.split("=") for argument in sys.argv[1:])
settings = param.LoadParm()
settings.set("log level", "0")


def connect(interface, pipe, options="", user="alice"):
    who = credentials.Credentials()
    who.guess(settings)
    who.set_username(user)
    who.set_password("secret")
    who.set_domain("NODE1")
    who.set_workstation("client")
    who.set_kerberos_state(credentials.DONT_USE_KERBEROS)
    if not options:
        who.set_anonymous()
    options = ",".join([ports[pipe]] + options.split())
    return interface("ncacn_ip_tcp:127.0.0.1[%s]" % options, settings, who)


def refused(code, call, *args):
    try:
        call(*args)
    except (NTSTATUSError, WERRORError, RuntimeError) as error:
        assert (error.args[0] & 0xffffffff) == code, error
        return
    raise AssertionError("%s was not refused" % call)


def shares(options):
    server = connect(srvsvc.srvsvc, "srvsvc", options)
    for level, kind in ((0, srvsvc.NetShareCtr0), (1, srvsvc.NetShareCtr1), (2, srvsvc.NetShareCtr2),
                        (501, srvsvc.NetShareCtr501), (502, srvsvc.NetShareCtr502)):
        info = srvsvc.NetShareInfoCtr()
        info.level = level
        info.ctr = kind()
        found, total, _ = server.NetShareEnumAll("\\\\node1", info, 0xffffffff, 0)
        assert [share.name for share in found.ctr.array] == ["vm", "backup$", "IPC$"] and total == 3
        assert server.NetShareGetInfo("\\\\node1", "vm", level).name == "vm"
    assert server.NetShareGetInfo(None, "vm", 1005).dfs_flags == 0x4000
    share = srvsvc.NetShareInfo502()
    share.name, share.comment, share.path = "made", "A comment", "C:\\made"
    share.max_users = 0xffffffff
    buffer = srvsvc.sec_desc_buf() if hasattr(srvsvc, "sec_desc_buf") else None
    if buffer is None:
        from samba.dcerpc import security as kinds
        buffer = kinds.sec_desc_buf()
    buffer.sd = security.descriptor.from_sddl("O:BAG:BAD:(A;;GA;;;WD)", security.dom_sid("S-1-5-21-1-2-3"))
    share.sd_buf = buffer
    server.NetShareAdd(None, 502, share, None)
    refused(0x846, server.NetShareAdd, None, 502, share, None)
    made = server.NetShareGetInfo(None, "MADE", 502)
    assert made.comment == "A comment" and made.sd_buf.sd.as_sddl() == "O:BAG:BAD:(A;;GA;;;WD)"
    change = srvsvc.NetShareInfo1004()
    change.comment = "Another"
    server.NetShareSetInfo(None, "made", 1004, change, 0)
    assert server.NetShareGetInfo(None, "made", 1).comment == "Another"
    server.NetShareDel(None, "made", 0)
    refused(0x906, server.NetShareDel, None, "made", 0)
    for level in (100, 101, 102):
        assert server.NetSrvGetInfo(None, level).server_name == "NODE1"
    info = srvsvc.NetSessInfoCtr()
    for level, kind in ((0, srvsvc.NetSessCtr0), (1, srvsvc.NetSessCtr1), (2, srvsvc.NetSessCtr2),
                        (10, srvsvc.NetSessCtr10), (502, srvsvc.NetSessCtr502)):
        info.level, info.ctr = level, kind()
        found, total, _ = server.NetSessEnum(None, None, None, info, 0xffffffff, 0)
        assert found.ctr.array[0].client == "192.0.2.1" and total == 1
    info = srvsvc.NetFileInfoCtr()
    info.level, info.ctr = 3, srvsvc.NetFileCtr3()
    found, _, _ = server.NetFileEnum(None, None, None, info, 0xffffffff, 0)
    assert found.ctr.array[0].path == "C:\\vm\\a.vhdx"
    info = srvsvc.NetConnInfoCtr()
    info.level, info.ctr = 1, srvsvc.NetConnCtr1()
    found, _, _ = server.NetConnEnum(None, "vm", info, 0xffffffff, 0)
    assert found.ctr.array[0].share == "vm"
    info = srvsvc.NetTransportInfoCtr()
    info.level, info.ctr = 0, srvsvc.NetTransportCtr0()
    found, _, _ = server.NetTransportEnum(None, info, 0xffffffff, 0)
    assert found.ctr.array[0].name == "\\Device\\NetbiosSmb"
    clock = server.NetRemoteTOD(None)
    assert (clock.year, clock.month, clock.day) == (2026, 5, 27)


def workstation(options):
    station = connect(wkssvc.wkssvc, "wkssvc", options)
    for level in (100, 101, 102):
        info = station.NetWkstaGetInfo(None, level)
        assert (info.server_name, info.domain_name) == ("NODE1", "WORKGROUP")


def names(options):
    authority = connect(lsa.lsarpc, "lsarpc", options)
    attributes = lsa.ObjectAttribute()
    attributes.sec_qos = lsa.QosInfo()
    policy = authority.OpenPolicy2("\\\\node1", attributes, security.SEC_FLAG_MAXIMUM_ALLOWED)
    authority.OpenPolicy(ord("\\"), attributes, security.SEC_FLAG_MAXIMUM_ALLOWED)
    assert authority.QueryInfoPolicy(policy, lsa.LSA_POLICY_INFO_DOMAIN).name.string == "WORKGROUP"
    account = authority.QueryInfoPolicy2(policy, lsa.LSA_POLICY_INFO_ACCOUNT_DOMAIN)
    assert account.name.string == "NODE1" and str(account.sid) == "S-1-5-21-1-2-3"
    assert authority.QueryInfoPolicy2(policy, lsa.LSA_POLICY_INFO_ROLE).role == lsa.LSA_ROLE_PRIMARY
    assert authority.QueryInfoPolicy2(policy, lsa.LSA_POLICY_INFO_DNS).name.string == "WORKGROUP"
    sids = lsa.SidArray()
    pointers = []
    for text in ("S-1-5-21-1-2-3-1000", "S-1-5-32-544", "S-1-1-0"):
        pointer = lsa.SidPtr()
        pointer.sid = security.dom_sid(text)
        pointers.append(pointer)
    sids.sids, sids.num_sids = pointers, len(pointers)
    domains, found, count = authority.LookupSids(policy, sids, lsa.TransNameArray(), lsa.LSA_LOOKUP_NAMES_ALL, 0)
    assert [name.name.string for name in found.names] == ["bob", "Administrators", "Everyone"] and count == 3
    domains, found, count = authority.LookupSids2(policy, sids, lsa.TransNameArray2(), 1, 0, 0, 1)
    assert [name.sid_type for name in found.names] == [1, 4, 5]
    assert domains.domains[found.names[0].sid_index].name.string == "NODE1"
    wanted = []
    for text in ("bob", "BUILTIN\\Administrators"):
        name = lsa.String()
        name.string = text
        wanted.append(name)
    _, found, _ = authority.LookupNames(policy, wanted, lsa.TransSidArray(), 1, 0)
    assert [sid.rid for sid in found.sids] == [1000, 544]
    _, found, _ = authority.LookupNames2(policy, wanted, lsa.TransSidArray2(), 1, 0, 0, 1)
    assert [sid.rid for sid in found.sids] == [1000, 544]
    _, found, _ = authority.LookupNames3(policy, wanted, lsa.TransSidArray3(), 1, 0, 0, 1)
    assert str(found.sids[0].sid) == "S-1-5-21-1-2-3-1000"
    accounts = authority.EnumAccounts(policy, 0, 1000)[1]
    assert accounts.num_sids == 4
    rights = authority.EnumAccountRights(policy, security.dom_sid("S-1-5-32-544"))
    assert "SeBackupPrivilege" in [right.string for right in rights.names]
    name, domain = authority.GetUserName(None, None, base.ndr_pointer(lsa.String()))
    assert name.string in ("alice", "bob") and domain.value.string == "NODE1"
    authority.Close(policy)


def accounts(options):
    manager = connect(samr.samr, "samr", options)
    allowed = security.SEC_FLAG_MAXIMUM_ALLOWED
    server = manager.Connect2(None, allowed)
    _, found, count = manager.EnumDomains(server, 0, 0xffffffff)
    assert [entry.name.string for entry in found.entries] == ["NODE1", "Builtin"]
    text = lsa.String()
    text.string = "NODE1"
    sid = manager.LookupDomain(server, text)
    domain = manager.OpenDomain(server, allowed, sid)
    builtin = manager.OpenDomain(server, allowed, security.dom_sid("S-1-5-32"))
    for level in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13):
        info = manager.QueryDomainInfo(domain, level)
        if level == 2:
            assert info.domain_name.string == "NODE1" and info.num_users == 2 and info.num_aliases == 1
            assert info.role == samr.SAMR_ROLE_DOMAIN_PDC
        if level == 7:
            assert info.role == samr.SAMR_ROLE_DOMAIN_PDC, info.role
        if level == 11:
            assert info.general.domain_name.string == "NODE1" and info.general.num_users == 2
            assert info.lockout_threshold == 0
        manager.QueryDomainInfo2(domain, level)
    _, users, _ = manager.EnumDomainUsers(domain, 0, 0, 0xffffffff)
    assert [(user.idx, user.name.string) for user in users.entries] == [(1000, "bob"), (1001, "alice")]
    _, groups, _ = manager.EnumDomainAliases(builtin, 0, 0xffffffff)
    assert [group.idx for group in groups.entries] == [544, 545]
    user = manager.OpenUser(domain, allowed, 1001)
    for level in list(range(1, 15)) + [16, 17, 20, 21]:
        info = manager.QueryUserInfo(user, level)
        manager.QueryUserInfo2(user, level)
        if level in (1, 3, 5, 6, 21):
            assert info.full_name.string == "Alice \u00c4", (level, info.full_name.string)
        if level in (3, 5, 21):
            assert info.rid == 1001 and info.primary_gid == 513 and info.acct_flags & 0x10
            assert info.logon_hours.units_per_week == 168
    assert [entry.rid for entry in manager.GetGroupsForUser(user).rids] == [513]
    sids = lsa.SidArray()
    pointer = lsa.SidPtr()
    pointer.sid = security.dom_sid("S-1-5-21-1-2-3-1001")
    sids.sids, sids.num_sids = [pointer], 1
    assert manager.GetAliasMembership(domain, sids).ids == [1002]
    alias = manager.OpenAlias(domain, allowed, 1002)
    assert manager.QueryAliasInfo(alias, 1).num_members == 2
    assert len(manager.GetMembersInAlias(alias).sids) == 2
    group = manager.OpenGroup(domain, allowed, 513)
    for level in (1, 2, 3, 4, 5):
        manager.QueryGroupInfo(group, level)
    assert manager.QueryGroupMember(group).rids == [1000, 1001]
    found, kinds = manager.LookupRids(domain, [1000, 1002])
    assert [name.string for name in found.names] == ["bob", "staff"] and kinds.ids == [1, 4]
    for level in (1, 2, 3):
        total, _, found = manager.QueryDisplayInfo(domain, level, 0, 100, 0xffffffff)
        manager.QueryDisplayInfo2(domain, level, 0, 100, 0xffffffff)
        manager.QueryDisplayInfo3(domain, level, 0, 100, 0xffffffff)
        if level == 1:
            assert [line.full_name.string for line in found.entries] == ["Robert", "Alice \u00c4"]
    manager.Close(user)


failed = False
protections = ["", "connect ntlm", "sign ntlm", "seal ntlm", "connect spnego", "sign spnego", "seal spnego",
               "packet ntlm", "bigendian", "bigendian seal spnego"]
for options in protections:
    for part in (workstation, shares, names, accounts):
        try:
            part(options)
        except Exception:
            failed = True
            print("%s with '%s':" % (part.__name__, options), flush=True)
            traceback.print_exc()
# No common transfer syntax: STATUS_RPC_PROTSEQ_NOT_SUPPORTED or its like, but no binding.
for options, user in (("ndr64", "alice"), ("seal ntlm", "nobody"), ("seal spnego", "nobody")):
    try:
        connect(srvsvc.srvsvc, "srvsvc", options, user).NetSrvGetInfo(None, 101)
        failed = True
        print("a binding with '%s' for %s" % (options, user))
    except NTSTATUSError:
        pass
sys.exit(failed)
