"""A plug-in for pytest that has pike's tests of continuously available shares ask for leases that such a share grants.

They were written for shares that are available without being scaled out, and expect to cache handles and writes; a client
that is away could not give those up. Everything else in them stays as it is.
"""
import pike.smb2
import pike.test.appinstanceid
import pike.test.persistent

READ = pike.smb2.SMB2_LEASE_READ_CACHING


def pytest_configure(config):
    pike.test.persistent.LEASE_RWH = READ
    made = pike.test.appinstanceid.AppInstanceIdTest.__init__

    def init(self, *arguments, **named):
        made(self, *arguments, **named)
        self.r = self.rw = self.rh = self.rwh = READ

    pike.test.appinstanceid.AppInstanceIdTest.__init__ = init
