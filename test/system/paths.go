package system

import ()

const (
	LogoutEvent     = "http://schemas.openid.net/event/backchannel-logout"
	BackChannelPath = "/logout/backchannel"
	formType        = "Content-Type: application/x-www-form-urlencoded"
)

const (
	GrantsPath  = "/v1/entitlements/grants"
	RevokesPath = "/v1/entitlements/revokes"
	EventsPath  = "/v1/events"
)

const (
	MePath    = "/v1/me"
	InboxPath = "/v1/me/notifications"
)

const OverviewPath = "/v1/me/overview"
